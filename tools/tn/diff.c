#include "circuits.h"
void diff_report(subject *s, const char *other) { (void)s; (void)other; }
void paths_report(subject *s, const char *text) { (void)s; (void)text; }
void attribute_report(subject *s, const char *text) { (void)s; (void)text; }
