// SPDX-License-Identifier: GPL-2.0
/*
 * Counts for the topic lwq, where times are as good as the machine is idle: the instructions, and the cache lines missed, of the
 * kernel's own queue in a user program under callgrind. testbed/counts.py builds it of the queue before the topic and after.
 *
 *	count held|dequeue DEPTH cold|warm	the first dequeue with DEPTH entries waiting, or what of it is under the lock
 *	count pass DEPTH ENTRIES		ENTRIES dequeues, each followed by an enqueue
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>
#include "shim.h"
#include "llist.c"
#include "lwq.c"

/* Two transports are as far apart, and this is larger than the simulated cache. */
#define STRIDE	2048
#define EVICT	(4 << 20)

struct entry {
	struct lwq_node n;
};

static struct lwq q;

int main(int argc, char **argv)
{
	long depth = atol(argv[2]), entries = argc > 3 ? atol(argv[3]) : 0, i;
	char *area = calloc(depth, STRIDE), *evict = calloc(EVICT, 1);
	struct entry *e;

	lwq_init(&q);
	for (i = 0; i < depth; i++)
		lwq_enqueue(&((struct entry *)(area + i * STRIDE))->n, &q);
	if (!strcmp(argv[1], "pass")) {
		CALLGRIND_TOGGLE_COLLECT;
		for (i = 0; i < entries; i++) {
			e = lwq_dequeue(&q, struct entry, n);
			lwq_enqueue(&e->n, &q);
		}
		CALLGRIND_TOGGLE_COLLECT;
		return 0;
	}
	for (i = 0; !strcmp(argv[3], "cold") && i < EVICT; i += 64)
		evict[i]++;
	shim_count_held = !strcmp(argv[1], "held");
	if (!shim_count_held)
		CALLGRIND_TOGGLE_COLLECT;
	e = lwq_dequeue(&q, struct entry, n);
	if (!shim_count_held)
		CALLGRIND_TOGGLE_COLLECT;
	return !e;
}
