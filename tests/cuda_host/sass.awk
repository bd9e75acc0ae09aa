# awk -f sass.awk FILE: FILE is what `cuobjdump -res-usage` and `cuobjdump -sass` say of an object. Prints a line of numbers per kernel,
# separated by tabs; sass.sh says what they mean.

function hex(text,    n, i) {
    for (i = 1; i <= length(text); i++) n = 16 * n + index("0123456789abcdef", substr(text, i, 1)) - 1
    return n + 0
}

function between(table, first, last) { return table[last] - table[first - 1] }

# The innermost loop with the largest number in this table; 0 if none has any. Of equal ones the shortest.
function loop_of(table,    i, k, inner, n, best, most) {
    for (i = 1; i <= loops; i++) {
        n = between(table, begin[i], end[i])
        inner = n > 0
        for (k = 1; k <= loops && inner; k++)
            if (k != i && begin[k] >= begin[i] && end[k] <= end[i] && between(table, begin[k], end[k]) > 0) inner = 0
        if (inner && (!best || n > most || n == most && end[i] - begin[i] < end[best] - begin[best])) { best = i; most = n }
    }
    return best + 0
}

# Walks once through a loop, on the way that is usual: unconditional branches are taken, and so is one that leads past RARE or more
# instructions with none for tensor cores and no copy to shared memory, such as those for masks, the end of a chunk or infinities.
function walk(loop,    k, to_) {
    path = smem = 0
    for (k = begin[loop]; k <= end[loop]; k++) {
        path++
        smem += cost[k]
        to_ = k in goes ? goes[k] : 0
        if (to_ > k && to_ <= end[loop] && (always[k] || to_ - k > RARE && between(work, k, to_ - 1) == 0)) k = to_ - 1
    }
}

function report(    k, at, loop, first, last) {
    if (name == "") return
    for (k = 1; k <= branches; k++) {
        if (!(to[k] in index_of)) continue
        at = index_of[to[k]]
        goes[from[k]] = at
        if (at > from[k]) continue
        for (loop = 1; loop <= loops && begin[loop] != at; loop++);
        if (loop > loops) begin[loops = loop] = at
        end[loop] = from[k]                           # several branches to one place are one loop, up to the last
    }
    loop = tensor[count] > 0 ? loop_of(tensor) : loop_of(memory)
    first = 1
    last = path = smem = 0
    if (loop) { first = begin[loop]; last = end[loop]; walk(loop) }
    if (tensor[count] == 0) path = last - first + 1
    printf "%s\t%d\t%d\t%d\t%d\t%d", name, registers[name], shared[name], spills, last - first + 1, path
    printf "\t%d\t%d\t%d\t%.1f\t%.1f\t%d\n", between(hmma, first, last), between(hgmma, first, last), between(ldsm, first, last), smem,
        between(clocks, first, last), between(memory, first, last)
}

BEGIN { RARE = 48 }
/^ *Function [^ ]*:$/ { f = $2; sub(/:$/, "", f); next }
/REG:[0-9]+/ {
    match($0, /REG:[0-9]+/); registers[f] = substr($0, RSTART + 4, RLENGTH - 4)
    match($0, /SHARED:[0-9]+/); shared[f] = substr($0, RSTART + 7, RLENGTH - 7)
}
/Function : / { report(); name = $3; count = branches = loops = spills = 0; split("", index_of); split("", goes); split("", always); next }
/^ +\/\*[0-9a-f]+\*\/ / {
    address = $1; gsub(/[\/*]/, "", address)
    what = $2 ~ /^@/ ? $3 : $2
    if (what ~ /^NOP/) next
    index_of[hex(address)] = ++count
    hmma[count] = hmma[count - 1] + (what ~ /^HMMA/)
    hgmma[count] = hgmma[count - 1] + (what ~ /^HGMMA/)
    tensor[count] = hmma[count] + hgmma[count]
    work[count] = work[count - 1] + (what ~ /^(HMMA|HGMMA|LDGSTS|UTMALDG|UBLKCP)/)
    ldsm[count] = ldsm[count - 1] + (what ~ /^LDSM/)
    n = what ~ /\.128/ ? 16 : what ~ /\.64/ ? 8 : what ~ /\.[US]8/ ? 1 : what ~ /\.[US]16/ ? 2 : 4
    memory[count] = memory[count - 1] + n * (what ~ /^(LDG|STG|RED|ATOMG|LDGSTS)(\.|$)/)
    cost[count] = what ~ /^LDSM/ ? 4 : what ~ /^(LDS|STS)/ ? (n > 4 ? n / 4 : 1) : 0
    n = 0                                              # of tensor cores that do 4096 flops per clock
    if (what ~ /^HMMA/) n = 1
    else if (what ~ /^HGMMA/) {                        # a quarter of 64 x N x 16, where B and perhaps A come from shared memory
        split(what, part, "x")
        n = part[2] / 8
        cost[count] = n / 2 + ($0 ~ /HGMMA[^ ]* R[0-9]+, gdesc/ ? 4 : 0)
    }
    clocks[count] = clocks[count - 1] + n
    spills += what ~ /^(STL|LDL)/
    if (what ~ /^BRA/ && match($0, /0x[0-9a-f]+/)) {
        to[++branches] = hex(substr($0, RSTART + 2, RLENGTH - 2))
        from[branches] = count
        if ($2 ~ /^BRA/ && $3 !~ /^!?U?P/) always[count] = 1
    }
}
END { report() }
