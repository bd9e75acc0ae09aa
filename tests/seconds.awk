# awk -f tests/seconds.awk FILE...: prints the processor seconds, user and system, of the commands that a shell has run, and the
# name of the file that its builtin `times` wrote: the shell's own time on one line, that of its commands on the next, each as
# 1m2.34s, in some languages with a comma.
function seconds(t, part) { sub(/,/, ".", t); split(t, part, /[ms]/); return 60 * part[1] + part[2] }
FNR == 2 { printf "%.2f %s\n", seconds($1) + seconds($2), FILENAME; files++ }
END { if (!files) { print "seconds.awk: this is not what `times` prints" > "/dev/stderr"; exit 1 } }
