# awk -f tests/seconds.awk FILE: prints the processor seconds, user and system, of the commands that a shell has run. FILE is
# what its builtin `times` printed: the shell's own time on one line, that of its commands on the next, each as 1m2.34s,
# in some languages with a comma.
function seconds(t, part) { sub(/,/, ".", t); split(t, part, /[ms]/); return 60 * part[1] + part[2] }
END {
    if (NR != 2) { print "seconds.awk: this is not what `times` prints" > "/dev/stderr"; exit 1 }
    printf "%.2f\n", seconds($1) + seconds($2)
}
