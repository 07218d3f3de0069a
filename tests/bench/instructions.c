/*
 * A plugin of QEMU 7.2 or newer: prints how many instructions a program has executed, at its end and whenever it yields.
 * tests/bench/emulated.py builds it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stddef.h>

/* What it needs of QEMU's interface for plugins, version 1. */
struct qemu_plugin_tb;
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int add, void *to, uint64_t number);
typedef void (*syscall_call)(uint64_t id, unsigned cpu, int64_t number, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t, uint64_t, uint64_t);
extern void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, syscall_call call);
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void *), void *data);

int qemu_plugin_version = 1;
static uint64_t executed;

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
	qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(uint64_t id, void *data)
{
	fprintf(stderr, "instructions %llu\n", (unsigned long long)executed);
}

/* The number of sched_yield on aarch64. */
static void called(uint64_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                   uint64_t f, uint64_t g, uint64_t h)
{
	if (number == 124)
		ended(id, NULL);
}

int qemu_plugin_install(uint64_t id, const void *info, int count, char **options)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_vcpu_syscall_cb(id, called);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
