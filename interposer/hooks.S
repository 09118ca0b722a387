/* SPDX-License-Identifier: Apache-2.0 */
/* One stub for each function of the driver. It counts, and jumps to the driver with all arguments as they are, so that
 * it needs to know none of them: the driver returns to the program itself. */

#define STUB(name)                                                             \
  .globl name; .type name, @function; .p2align 4;                              \
  name: .cfi_startproc; endbr64; movl $number, %r11d; jmp count_and_go;        \
  .cfi_endproc; .size name, . - name; .set number, number + 1;

/* Asks `function` with the number of the hook and the address to which the program's call returns, and jumps to its
 * answer with all arguments as they are. */
#define FORWARD(function)                                                      \
        pushq %rbp;                                                            \
        .cfi_adjust_cfa_offset 8; .cfi_rel_offset %rbp, 0;                     \
        movq %rsp, %rbp;                                                       \
        .cfi_def_cfa_register %rbp;                                            \
        subq $192, %rsp;                                                       \
        movq %rdi, 0(%rsp);                                                    \
        movq %rsi, 8(%rsp);                                                    \
        movq %rdx, 16(%rsp);                                                   \
        movq %rcx, 24(%rsp);                                                   \
        movq %r8, 32(%rsp);                                                    \
        movq %r9, 40(%rsp);                                                    \
        movq %rax, 48(%rsp);                                                   \
        movups %xmm0, 64(%rsp);                                                \
        movups %xmm1, 80(%rsp);                                                \
        movups %xmm2, 96(%rsp);                                                \
        movups %xmm3, 112(%rsp);                                               \
        movups %xmm4, 128(%rsp);                                               \
        movups %xmm5, 144(%rsp);                                               \
        movups %xmm6, 160(%rsp);                                               \
        movups %xmm7, 176(%rsp);                                               \
        movq %r11, %rdi;                                                       \
        movq 8(%rbp), %rsi;                                                    \
        call function;                                                         \
        movq %rax, %r11;                                                       \
        movq 0(%rsp), %rdi;                                                    \
        movq 8(%rsp), %rsi;                                                    \
        movq 16(%rsp), %rdx;                                                   \
        movq 24(%rsp), %rcx;                                                   \
        movq 32(%rsp), %r8;                                                    \
        movq 40(%rsp), %r9;                                                    \
        movq 48(%rsp), %rax;                                                   \
        movups 64(%rsp), %xmm0;                                                \
        movups 80(%rsp), %xmm1;                                                \
        movups 96(%rsp), %xmm2;                                                \
        movups 112(%rsp), %xmm3;                                               \
        movups 128(%rsp), %xmm4;                                               \
        movups 144(%rsp), %xmm5;                                               \
        movups 160(%rsp), %xmm6;                                               \
        movups 176(%rsp), %xmm7;                                               \
        leave;                                                                 \
        .cfi_def_cfa %rsp, 8; .cfi_restore %rbp;                               \
        jmp *%r11

        .text
        .hidden sublet_reals
        .hidden sublet_slow
        .hidden sublet_behind
        .hidden sublet_shard
        .hidden sublet_lookup
        .hidden sublet_hooks

/* r11: number of the hook. r10 and r11 are free between a caller and a function. */
        .type count_and_go, @function
        .p2align 6
count_and_go:
        .cfi_startproc
        movq sublet_shard@GOTTPOFF(%rip), %r10
        movq %fs:(%r10), %r10
        testq %r10, %r10
        jz first_of_thread
        lock incq (%r10, %r11, 8)
        leaq sublet_reals(%rip), %r10
        jmp *(%r10, %r11, 8)

first_of_thread:
        FORWARD(sublet_slow)
        .cfi_endproc
        .size count_and_go, . - count_and_go

/* In place of a function that the driver lacks. Only count_and_go jumps here, so that r11 is the number of the hook. */
        .globl sublet_lacking
        .hidden sublet_lacking
        .type sublet_lacking, @function
        .p2align 4
sublet_lacking:
        .cfi_startproc
        FORWARD(sublet_behind)
        .cfi_endproc
        .size sublet_lacking, . - sublet_lacking

        .set number, 0
#define HOOK(name, family) STUB(name)
#define WRITTEN(name, family) .set number, number + 1;
#include "generated/exports.inc"
#undef HOOK
#undef WRITTEN

/* The order of the arguments is that of sublet_lookup: handle, name, version, caller. */
        .globl dlsym
        .type dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        xorl %edx, %edx
        jmp look_up
        .cfi_endproc
        .size dlsym, . - dlsym

        .globl dlvsym
        .type dlvsym, @function
        .p2align 4
dlvsym:
        .cfi_startproc
        endbr64
look_up:
        movq (%rsp), %rcx
        pushq %rdi
        .cfi_adjust_cfa_offset 8
        pushq %rsi
        .cfi_adjust_cfa_offset 8
        pushq %rdx
        .cfi_adjust_cfa_offset 8
        call sublet_lookup
        movq %rdx, %r11
        popq %rdx
        .cfi_adjust_cfa_offset -8
        popq %rsi
        .cfi_adjust_cfa_offset -8
        popq %rdi
        .cfi_adjust_cfa_offset -8
        testq %r11, %r11
        jnz answered
        jmp *%rax
answered:
        ret
        .cfi_endproc
        .size dlvsym, . - dlvsym

/* The loader fills this table with the addresses of our functions. */
        .section .data.rel.ro, "aw", @progbits
        .globl sublet_hooks
        .type sublet_hooks, @object
        .p2align 3
sublet_hooks:
#define HOOK(name, family) .quad name;
#define WRITTEN(name, family) .quad name;
#include "generated/exports.inc"
        .size sublet_hooks, . - sublet_hooks

        .section .note.GNU-stack, "", @progbits
