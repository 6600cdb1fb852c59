/*
 * fiber.h - switching between stacks, as a thread of a kernel that waits has to.
 */
#ifndef PGT_SIM_FIBER_H
#define PGT_SIM_FIBER_H

namespace sim
{

/* A stack and where it stopped. */
struct Fiber
{
	void	   *stack_pointer = nullptr;
	Fiber	   *next_free = nullptr;
};

/* Made once and kept; entry never returns. */
extern Fiber *fiber_new(void (*entry) ());
/* Go on with another fiber, until something switches back. */
extern void fiber_switch(Fiber *from, Fiber *to);

}								/* namespace sim */

#endif							/* PGT_SIM_FIBER_H */
