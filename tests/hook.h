/* hook.h: what a test that is linked with hook.c can ask for while it runs */

#ifndef TN_HOOK_H
#define TN_HOOK_H

/* Plans this fault, written as in TN_FAULT; calls are counted from here. "" plans none. Exits with status 97 if the text is
   not a valid fault. */
void hook_plan(const char *fault);
/* How often it happened since then. */
unsigned hook_happened(void);

#endif
