// SPDX-License-Identifier: GPL-2.0-only
/*
 * Job keys: which PEs exist for each other. hw.h says what is in them; devices only compare them,
 * and nowhere does one come from user memory.
 */
#include <linux/cred.h>
#include <linux/user_namespace.h>

#include "nic.h"

static u64 job_key_make(unsigned int class, u64 value)
{
	return (u64)class << ANGARA_JOB_SHIFT | value;
}

u64 angara_job_key_granted(u64 value)
{
	return job_key_make(ANGARA_JOB_GRANTED, value);
}

/*
 * Root is a user like any other. Ids of another user namespace are those of the initial one that
 * they are mapped to: other nodes may have mapped the same ones for somebody else.
 */
int angara_job_key_own(const struct angara_device *adev, u64 *key)
{
	const struct cred *cred = current_cred();
	u64 uid = from_kuid(&init_user_ns, cred->euid);

	/* One who runs as another for a while is neither. */
	if (!uid_eq(cred->uid, cred->euid) || !uid_eq(cred->suid, cred->euid))
		return -EPERM;
	if (cred->user_ns == &init_user_ns)
		*key = job_key_make(ANGARA_JOB_USER, uid);
	else
		*key = job_key_make(ANGARA_JOB_LOCAL, (u64)adev->node_id << 32 | uid);
	return 0;
}
