// A plugin of QEMU's user mode: prints how many instructions a program executed.
//
// It declares the functions that it needs of version 1 of the interface (QEMU 6.0 to 8.2), since Debian has no package
// with qemu-plugin.h.

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;

enum { ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

int qemu_plugin_version = 1;

static uint64_t executed;

// A block of instructions is translated once, and adds its length each time it runs.
static void translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(plugin_id id, void *unused) {
    (void)id, (void)unused;
    fprintf(stderr, "instructions: %" PRIu64 "\n", executed);
}

int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments) {
    (void)info, (void)count, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
