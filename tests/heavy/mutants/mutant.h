/* mutant.h: what the copy of the source with all mutants in it includes. TN_MUTANT(n) is true in the run of mutant n. */
#ifndef TN_MUTANT
#ifdef __cplusplus
extern "C" {
#endif
extern int tn_mutant;           /* the active mutant; 0: none; < 0: none, but note what is reached */
int tn_mutant_reached(int n);   /* notes n; false */
#ifdef __cplusplus
}
#endif
#define TN_MUTANT(n) (__builtin_expect(tn_mutant == (n) || tn_mutant < 0, 0) && (tn_mutant > 0 || tn_mutant_reached(n)))
#endif
