/* mutant.h: what the copy of the source that holds all mutants includes. TN_MUTANT(n) is true in the run of mutant n. In a run that
   notes what is reached (tn_mutant < 0) it is false, and notes n. */
#ifndef TN_MUTANT
#ifdef __cplusplus
extern "C" {
#endif
extern int  tn_mutant;
extern char tn_mutant_reached[];
#ifdef __cplusplus
}
#endif
#define TN_MUTANT(n) \
    (__builtin_expect(tn_mutant == (n) || tn_mutant < 0, 0) && (tn_mutant < 0 ? (tn_mutant_reached[n] = 1, 0) : 1))
#endif
