/* hook.h: what a test that is linked with hook.c can ask for while it runs */

#ifndef TN_HOOK_H
#define TN_HOOK_H

/* From now on this fault, as in TN_FAULT, counted from here; "" for none. Ends the program if it is no fault. */
void hook_plan(const char *fault);
/* How often it happened since then. */
unsigned hook_happened(void);

#endif
