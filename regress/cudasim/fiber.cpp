/*
 * fiber.cpp - switching between stacks.
 *
 * On x86-64 a switch saves what the calling convention wants kept, and nothing else: some ns, where swapcontext needs two
 * system calls.  Elsewhere swapcontext has to do.
 */
#include "regress/cudasim/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

static const size_t STACK = 128 * 1024;
static const size_t PAGE = 4096;
/* Stacks begin at different places in their pages, or all would want the same lines of the caches. */
static const size_t STAGGER = 5 * 64;

namespace sim
{

/* A new stack and its size; below it is a page that nobody may touch. */
static char *
stack_new(size_t *size)
{
	static size_t stagger;
	char *stack = (char *) mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
								0);

	if (stack == MAP_FAILED)
		abort();
	mprotect(stack, PAGE, PROT_NONE);
	stagger = (stagger + STAGGER) % (4 * PAGE);
	*size = STACK - stagger;
	return stack;
}

}								/* namespace sim */

#if defined(__x86_64__)

extern "C" void cudasim_switch_stack(void **from, void *to);

asm(R"(
	.text
	.globl	cudasim_switch_stack
	.type	cudasim_switch_stack, @function
cudasim_switch_stack:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret
	.size	cudasim_switch_stack, .-cudasim_switch_stack
)");

namespace sim
{

Fiber *
fiber_new(void (*entry) ())
{
	Fiber *fiber = new Fiber();
	size_t size;
	char *stack = stack_new(&size);
	void **top = (void **) (stack + size);

	/* six registers, the address to return to, and none to return to from there, which also aligns the stack */
	*--top = nullptr;
	*--top = (void *) entry;
	top -= 6;
	fiber->stack_pointer = top;
	return fiber;
}

void
fiber_switch(Fiber *from, Fiber *to)
{
	cudasim_switch_stack(&from->stack_pointer, to->stack_pointer);
}

}								/* namespace sim */

#else

#include <ucontext.h>

namespace sim
{

Fiber *
fiber_new(void (*entry) ())
{
	Fiber *fiber = new Fiber();
	ucontext_t *context = new ucontext_t();

	getcontext(context);
	context->uc_stack.ss_sp = stack_new(&context->uc_stack.ss_size);
	makecontext(context, entry, 0);
	fiber->stack_pointer = context;
	return fiber;
}

void
fiber_switch(Fiber *from, Fiber *to)
{
	if (from->stack_pointer == nullptr)
		from->stack_pointer = new ucontext_t();
	swapcontext((ucontext_t *) from->stack_pointer, (ucontext_t *) to->stack_pointer);
}

}								/* namespace sim */

#endif
