// SPDX-License-Identifier: GPL-2.0-only
/* /sys/class/angara/angara<N>: one value a file. */
#include <linux/sysfs.h>

#include "nic.h"

static struct angara_device *to_adev(struct device *dev)
{
	return container_of(dev, struct angara_device, dev);
}

static ssize_t node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", to_adev(dev)->node_id);
}
static DEVICE_ATTR_RO(node);

static ssize_t version_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	u32 version = to_adev(dev)->version;

	return sysfs_emit(buf, "%u.%u\n", version >> 16, version & 0xffff);
}
static DEVICE_ATTR_RO(version);

/* The attribute goes before the device is detached. */
static ssize_t link_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", angara_link_check(to_adev(dev)) ? "up" : "down");
}
static DEVICE_ATTR_RO(link);

static ssize_t loopback_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", to_adev(dev)->loopback);
}
static DEVICE_ATTR_RO(loopback);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct angara_device *adev = to_adev(dev);

	if (!READ_ONCE(adev->failed))
		return sysfs_emit(buf, "working\n");
	/* Waits until that is known. */
	if (angara_device_must_leak(adev))
		return sysfs_emit(buf, "failed, leaking\n");
	return sysfs_emit(buf, "failed\n");
}
static DEVICE_ATTR_RO(state);

static ssize_t pe_max_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", to_adev(dev)->pe_max);
}
static DEVICE_ATTR_RO(pe_max);

static ssize_t pe_used_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(to_adev(dev)->pe_used));
}
static DEVICE_ATTR_RO(pe_used);

static ssize_t mr_max_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", to_adev(dev)->mr_entries);
}
static DEVICE_ATTR_RO(mr_max);

static ssize_t mr_used_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", atomic_read(&to_adev(dev)->mr_used));
}
static DEVICE_ATTR_RO(mr_used);

static struct attribute *device_attrs[] = {
	&dev_attr_node.attr,
	&dev_attr_version.attr,
	&dev_attr_link.attr,
	&dev_attr_loopback.attr,
	&dev_attr_state.attr,
	&dev_attr_pe_max.attr,
	&dev_attr_pe_used.attr,
	&dev_attr_mr_max.attr,
	&dev_attr_mr_used.attr,
	NULL
};

static const struct attribute_group device_group = {
	.attrs = device_attrs,
};

const struct attribute_group *angara_device_groups[] = {
	&device_group,
	NULL
};
