// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests, never for use: failing allocations and delays in angara_nic and angara_memreg, put in
 * from outside by kprobes, so that what is tested is what is shipped; errors of PCI. Parameters, in
 * /sys/module/angara_hooks/parameters:
 *
 *   fail	write N: the N-th allocation that the writing task makes inside an entry point of
 *		the modules, or for a table of a device, and that may sleep, fails; 0: none.
 *		Read: how many have failed (0, 1), how many were seen
 *   delay	write "FUNCTION MICROSECONDS": tasks of users spin for so long before they enter the
 *		function (one of any module's or the kernel's; several may be given, and one given
 *		again gets its new time, 0 too). An empty line: no more delays. Read: how often
 *		tasks were delayed
 *   region	write "suspend" or "resume": the region that was created last, as a client whose
 *		memory moves does (to where it was). It must still be there
 *   pci_error	write "DOMAIN:BUS:DEVICE.FUNCTION WHAT": call angara_nic's error handlers for that
 *		function as the PCI core would if it had seen WHAT: normal, frozen, perm_failure,
 *		or slot_reset. Read: what the last one returned, a pci_ers_result_t, or 0
 *
 * The modules must be loaded before, and one task at a time may use @fail.
 */
#include <linux/gfp.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include <angara_client.h>

#if !IS_ENABLED(CONFIG_KPROBES_ON_FTRACE)
#error "needs kprobes that use ftrace: others run their handlers like NMIs"
#endif

/* ---- failing allocations --------------------------------------------------------------------- */

/* Nobody but @task changes the others while it is set. */
static struct {
	struct task_struct *task;	/* a reference, so that no other task has its address */
	unsigned int depth;	/* of entry points */
	unsigned int at;	/* the one to fail */
	unsigned int seen;
	unsigned int failed;
} fail;

struct allocator {
	const char *name;
	unsigned int gfp;	/* number of that argument */
	struct kprobe probe;
	bool active;
};

/* Of all kernels; those that one doesn't have are left out. */
static struct allocator allocators[] = {
	{ "kmem_cache_alloc", 1 },
	{ "kmem_cache_alloc_noprof", 1 },
	{ "kmem_cache_alloc_lru", 2 },
	{ "kmem_cache_alloc_lru_noprof", 2 },
	{ "kmem_cache_alloc_node", 1 },
	{ "kmem_cache_alloc_node_noprof", 1 },
	{ "kmalloc_trace", 1 },
	{ "__kmalloc_cache_noprof", 1 },
	{ "kmalloc_node_trace", 1 },
	{ "__kmalloc_cache_node_noprof", 1 },
	{ "__kmalloc", 1 },
	{ "__kmalloc_noprof", 1 },
	{ "__kmalloc_node", 1 },
	{ "__alloc_pages", 0 },
	{ "__alloc_pages_noprof", 0 },
	{ "__vmalloc_node_range", 4 },
	{ "__vmalloc_node_range_noprof", 4 },
};

/* What an allocator that fails becomes: it returns what the registers have. */
static noinline notrace void allocator_return(void)
{
	barrier();
}

static int allocator_enter(struct kprobe *probe, struct pt_regs *regs)
{
	const struct allocator *allocator = container_of(probe, struct allocator, probe);
	gfp_t gfp = (__force gfp_t)regs_get_kernel_argument(regs, allocator->gfp);

	/* The modules' own may all sleep; others are of the kernel's debugging aids. */
	if (READ_ONCE(fail.task) != current || !in_task() || !fail.depth || gfp & __GFP_NOFAIL ||
	    !(gfp & __GFP_DIRECT_RECLAIM))
		return 0;
	if (++fail.seen != fail.at)
		return 0;
	fail.failed++;
	regs_set_return_value(regs, 0);
	instruction_pointer_set(regs, (unsigned long)allocator_return);
	return 1;
}

/* A probe that may change where execution goes on has to have one. */
static void allocator_entered(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

/* Where users come in, and where probe gets its tables. */
static const char *const entry_names[] = {
	"angara_buf_check", "emu_queue_alloc", "angara_mr_table_alloc",
	"angara_ioctl_serve", "domain_open", "memreg_open", "angara_pe_mmap", "memreg_mmap",
	"pe_vma_fault", "stale_vma_fault",
};

static struct kretprobe entries[ARRAY_SIZE(entry_names)];

static int entry_enter(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (READ_ONCE(fail.task) != current)
		return 1;	/* its return is of no interest */
	fail.depth++;
	return 0;
}

static int entry_return(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (READ_ONCE(fail.task) == current)
		fail.depth--;
	return 0;
}

static void fail_clear(void)
{
	struct task_struct *task = xchg(&fail.task, NULL);

	if (task)
		put_task_struct(task);
}

static int fail_set(const char *text, const struct kernel_param *param)
{
	unsigned int at;
	int ret = kstrtouint(text, 0, &at);

	if (ret)
		return ret;
	fail_clear();
	if (!at)
		return 0;
	fail.at = at;
	fail.depth = 0;
	fail.seen = 0;
	fail.failed = 0;
	WRITE_ONCE(fail.task, get_task_struct(current));
	return 0;
}

static int fail_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%u %u\n", fail.failed, fail.seen);
}

static const struct kernel_param_ops fail_ops = {
	.set = fail_set,
	.get = fail_get,
};
module_param_cb(fail, &fail_ops, NULL, 0600);
MODULE_PARM_DESC(fail, "number of the writer's allocation that fails, 0: none");

/* ---- delays ---------------------------------------------------------------------------------- */

#define DELAYS_MAX	8
#define DELAY_US_MAX	20000

/* Changed under the lock of parameters. */
static struct delay {
	char name[64];
	unsigned int us;
	struct kprobe probe;
} delays[DELAYS_MAX];
static unsigned int num_delays;
static atomic_t num_delayed;

static int delay_enter(struct kprobe *probe, struct pt_regs *regs)
{
	const struct delay *delay = container_of(probe, struct delay, probe);
	unsigned int us = READ_ONCE(delay->us);
	u64 end = ktime_get_ns() + us * NSEC_PER_USEC;

	if (!us || !in_task() || current->flags & PF_KTHREAD)
		return 0;
	atomic_inc(&num_delayed);
	while (ktime_get_ns() < end)
		cpu_relax();
	return 0;
}

static void delays_clear(void)
{
	while (num_delays)
		unregister_kprobe(&delays[--num_delays].probe);
}

static struct delay *delay_of(const char *name)
{
	unsigned int i;

	for (i = 0; i < num_delays; i++)
		if (!strcmp(delays[i].name, name))
			return &delays[i];
	return NULL;
}

static int delay_set(const char *text, const struct kernel_param *param)
{
	struct delay *delay;
	char name[sizeof(delay->name)];
	unsigned int us;
	int ret;

	if (!*skip_spaces(text)) {
		delays_clear();
		return 0;
	}
	if (sscanf(text, "%63s %u", name, &us) != 2 || us > DELAY_US_MAX)
		return -EINVAL;
	delay = delay_of(name);
	if (delay) {
		WRITE_ONCE(delay->us, us);
		return 0;
	}
	if (num_delays == DELAYS_MAX)
		return -ENOSPC;
	delay = &delays[num_delays];
	memset(delay, 0, sizeof(*delay));
	strscpy(delay->name, name, sizeof(delay->name));
	delay->us = us;
	delay->probe.symbol_name = delay->name;
	delay->probe.pre_handler = delay_enter;
	ret = register_kprobe(&delay->probe);
	if (!ret)
		num_delays++;
	return ret;
}

static int delay_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&num_delayed));
}

static const struct kernel_param_ops delay_ops = {
	.set = delay_set,
	.get = delay_get,
};
module_param_cb(delay, &delay_ops, NULL, 0600);
MODULE_PARM_DESC(delay, "FUNCTION MICROSECONDS: delay who enters it; empty: nobody");

/* ---- regions --------------------------------------------------------------------------------- */

/* The one that was created last, by whom all the same. */
static struct {
	struct angara_mr *mr;
	struct sg_table *sgt;
} region;

static int create_enter(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	*(struct sg_table **)instance->data = (struct sg_table *)regs_get_kernel_argument(regs, 1);
	return 0;
}

static int create_return(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct angara_mr *mr = (struct angara_mr *)regs_return_value(regs);

	if (!IS_ERR(mr)) {
		region.sgt = *(struct sg_table **)instance->data;
		region.mr = mr;
	}
	return 0;
}

static struct kretprobe create_probe = {
	.kp.symbol_name = "angara_mr_create",
	.entry_handler = create_enter,
	.handler = create_return,
	.data_size = sizeof(struct sg_table *),
	.maxactive = 16,
};

/* Looked up when it is called: this module isn't linked with the others. */
#define CALL(function, ...)					\
({								\
	typeof(function) *call = symbol_get(function);		\
	int ret_ = -ENOENT;					\
								\
	if (call) {						\
		ret_ = call(__VA_ARGS__);			\
		symbol_put(function);				\
	}							\
	ret_;							\
})

static int region_set(const char *text, const struct kernel_param *param)
{
	if (!region.mr)
		return -ENOENT;
	if (sysfs_streq(text, "suspend"))
		return CALL(angara_mr_suspend, region.mr);
	if (sysfs_streq(text, "resume"))
		return CALL(angara_mr_resume, region.mr, region.sgt);
	return -EINVAL;
}

static const struct kernel_param_ops region_ops = {
	.set = region_set,
};
module_param_cb(region, &region_ops, NULL, 0200);
MODULE_PARM_DESC(region, "suspend or resume the region that was created last");

/* ---- errors of PCI --------------------------------------------------------------------------- */

static unsigned int pci_error_result;

static int pci_error_call(struct pci_dev *pdev, const struct pci_error_handlers *handlers,
			  const char *what)
{
	static const struct {
		const char *name;
		pci_channel_state_t state;
	} states[] = {
		{ "normal", pci_channel_io_normal },
		{ "frozen", pci_channel_io_frozen },
		{ "perm_failure", pci_channel_io_perm_failure },
	};
	unsigned int i;

	if (!strcmp(what, "slot_reset")) {
		pci_error_result = (__force unsigned int)handlers->slot_reset(pdev);
		pdev->error_state = pci_channel_io_normal;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(states); i++) {
		if (strcmp(what, states[i].name))
			continue;
		/* As it is left until "slot_reset", but for what the core would never leave. */
		pdev->error_state = states[i].state;
		pci_error_result =
			(__force unsigned int)handlers->error_detected(pdev, states[i].state);
		if (pdev->error_state == pci_channel_io_perm_failure)
			pdev->error_state = pci_channel_io_normal;
		return 0;
	}
	return -EINVAL;
}

static int pci_error_set(const char *text, const struct kernel_param *param)
{
	unsigned int domain, bus, device, function;
	struct pci_driver *driver;
	struct pci_dev *pdev;
	char what[16];
	int ret = -ENODEV;

	if (sscanf(text, "%x:%x:%x.%x %15s", &domain, &bus, &device, &function, what) != 5)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(device, function));
	if (!pdev)
		return -ENODEV;
	device_lock(&pdev->dev);
	driver = pdev->dev.driver ? to_pci_driver(pdev->dev.driver) : NULL;
	if (driver && driver->err_handler && !strcmp(driver->name, "angara_nic"))
		ret = pci_error_call(pdev, driver->err_handler, what);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
	return ret;
}

static int pci_error_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%u\n", pci_error_result);
}

static const struct kernel_param_ops pci_error_ops = {
	.set = pci_error_set,
	.get = pci_error_get,
};
module_param_cb(pci_error, &pci_error_ops, NULL, 0600);
MODULE_PARM_DESC(pci_error, "ADDRESS WHAT: call angara_nic's handler for that error");

/* ---- module ---------------------------------------------------------------------------------- */

static void allocators_unregister(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(allocators); i++) {
		if (allocators[i].active)
			unregister_kprobe(&allocators[i].probe);
	}
}

static int __init allocators_register(void)
{
	unsigned int i, active = 0;
	struct allocator *allocator;

	for (i = 0; i < ARRAY_SIZE(allocators); i++) {
		allocator = &allocators[i];
		allocator->probe.symbol_name = allocator->name;
		allocator->probe.pre_handler = allocator_enter;
		allocator->probe.post_handler = allocator_entered;
		allocator->active = !register_kprobe(&allocator->probe);
		active += allocator->active;
	}
	/* Slab by cache, by size, and pages at least: else this kernel calls them otherwise. */
	return active >= 4 ? 0 : -ENOENT;
}

static void entries_unregister(unsigned int count)
{
	while (count--)
		unregister_kretprobe(&entries[count]);
}

static int __init entries_register(void)
{
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(entries); i++) {
		entries[i].kp.symbol_name = entry_names[i];
		entries[i].entry_handler = entry_enter;
		entries[i].handler = entry_return;
		entries[i].maxactive = 16;
		ret = register_kretprobe(&entries[i]);
		if (ret) {
			pr_err("angara_hooks: there is no %s\n", entry_names[i]);
			entries_unregister(i);
			return ret;
		}
	}
	return 0;
}

static int __init angara_hooks_init(void)
{
	int ret = allocators_register();

	if (ret)
		return ret;
	ret = entries_register();
	if (ret)
		goto unregister_allocators;
	ret = register_kretprobe(&create_probe);
	if (ret)
		goto unregister_entries;
	return 0;

unregister_entries:
	entries_unregister(ARRAY_SIZE(entries));
unregister_allocators:
	allocators_unregister();
	return ret;
}

static void __exit angara_hooks_exit(void)
{
	delays_clear();
	unregister_kretprobe(&create_probe);
	entries_unregister(ARRAY_SIZE(entries));
	allocators_unregister();
	/* Somebody may have been preempted in allocator_return(). */
	synchronize_rcu_tasks();
	fail_clear();
}

module_init(angara_hooks_init);
module_exit(angara_hooks_exit);

MODULE_DESCRIPTION("Failing allocations, delays, errors of PCI, to test the Angara modules");
MODULE_LICENSE("GPL");
