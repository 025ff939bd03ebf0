/* SPDX-License-Identifier: GPL-2.0 */
/* What include/linux/lwq.h, lib/lwq.c and lib/llist.c need of the kernel, for a user program. */
#ifndef SHIM_H
#define SHIM_H
#include <stdbool.h>
#include <stddef.h>

#define READ_ONCE(x)		(*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v)	(*(volatile __typeof__(x) *)&(x) = (v))
#define xchg(p, v)		__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
#define try_cmpxchg(p, old, v)	__atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define smp_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)
#define container_of(p, t, m)	((t *)((char *)(p) - offsetof(t, m)))
#define member_address_is_nonnull(p, m)	((uintptr_t)(p) + offsetof(__typeof__(*(p)), m) != 0)
#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)
#define ____cacheline_aligned_in_smp	__attribute__((aligned(64)))
#define __always_inline		inline __attribute__((always_inline))
#define IS_ENABLED(x)		0
#define EXPORT_SYMBOL_GPL(x)
#define preempt_disable()	__asm__ volatile("" : : : "memory")
#define preempt_enable()	__asm__ volatile("" : : : "memory")
#define might_sleep()		do { } while (0)
#define cond_resched()		do { } while (0)
#define cpu_relax()		do { } while (0)
#define local_irq_save(f)	((f) = 0)
#define local_irq_restore(f)	((void)(f))

/* One thread: a lock is an atomic operation and a store, as it is when nobody waits for it. */
typedef struct {
	int locked;
} spinlock_t;

static bool shim_count_held;

#define spin_lock_init(l)	((l)->locked = 0)
#define spin_lock(l)							\
	do {								\
		__atomic_exchange_n(&(l)->locked, 1, __ATOMIC_ACQUIRE);	\
		if (shim_count_held)					\
			CALLGRIND_TOGGLE_COLLECT;			\
	} while (0)
#define spin_unlock(l)							\
	do {								\
		if (shim_count_held)					\
			CALLGRIND_TOGGLE_COLLECT;			\
		__atomic_store_n(&(l)->locked, 0, __ATOMIC_RELEASE);	\
	} while (0)
#endif
