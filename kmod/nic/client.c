// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clients: modules that learn about devices. Both lists and all callbacks are under devices_lock.
 */
#include <linux/bitops.h>
#include <linux/export.h>

#include "nic.h"

#define CLIENTS_MAX	BITS_PER_LONG

static DEFINE_MUTEX(devices_lock);
static LIST_HEAD(devices);
static LIST_HEAD(clients);
static DECLARE_BITMAP(client_ids, CLIENTS_MAX);

static void client_add(struct angara_client *client, struct angara_device *adev)
{
	int ret;

	lockdep_assert_held(&devices_lock);
	ret = client->add(adev);
	if (ret)
		dev_err(&adev->pdev->dev, "%s can't use the device: %d\n", client->name, ret);
	else
		__set_bit(client->id, &adev->clients);
}

static void client_remove(struct angara_client *client, struct angara_device *adev)
{
	lockdep_assert_held(&devices_lock);
	if (__test_and_clear_bit(client->id, &adev->clients))
		client->remove(adev);
}

int angara_client_register(struct angara_client *client)
{
	struct angara_device *adev;
	int ret = 0;

	mutex_lock(&devices_lock);
	client->id = find_first_zero_bit(client_ids, CLIENTS_MAX);
	if (client->id == CLIENTS_MAX) {
		ret = -ENOSPC;
		goto unlock;
	}
	__set_bit(client->id, client_ids);
	list_add_tail(&client->node, &clients);
	list_for_each_entry(adev, &devices, node)
		client_add(client, adev);
unlock:
	mutex_unlock(&devices_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(angara_client_register);

void angara_client_unregister(struct angara_client *client)
{
	struct angara_device *adev;

	mutex_lock(&devices_lock);
	list_for_each_entry(adev, &devices, node)
		client_remove(client, adev);
	list_del(&client->node);
	__clear_bit(client->id, client_ids);
	mutex_unlock(&devices_lock);
}
EXPORT_SYMBOL_GPL(angara_client_unregister);

struct angara_device *angara_device_find(unsigned int number)
{
	struct angara_device *adev, *found = NULL;

	mutex_lock(&devices_lock);
	list_for_each_entry(adev, &devices, node) {
		if (adev->number == number) {
			get_device(&adev->dev);
			found = adev;
			break;
		}
	}
	mutex_unlock(&devices_lock);
	return found;
}

void angara_clients_add(struct angara_device *adev)
{
	struct angara_client *client;

	mutex_lock(&devices_lock);
	list_add_tail(&adev->node, &devices);
	list_for_each_entry(client, &clients, node)
		client_add(client, adev);
	mutex_unlock(&devices_lock);
}

void angara_clients_remove(struct angara_device *adev)
{
	struct angara_client *client;

	mutex_lock(&devices_lock);
	list_for_each_entry_reverse(client, &clients, node)
		client_remove(client, adev);
	list_del(&adev->node);
	mutex_unlock(&devices_lock);
}
