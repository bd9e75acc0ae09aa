# awk -f resources.awk BUDGET LOG PTX: what ptxas -v says of each kernel (LOG) against its line of the budget, and what stands in its
# PTX. Prints what is wrong; with -v mode=--budget the lines that a budget needs, registers rounded up to 8, as the hardware gives them.

# The name of a function, from its symbol: _Z, its length, its name. What follows, its template arguments and parameters, into rest.
function plain(symbol,    length_) {
    rest = ""
    if (symbol !~ /^_ZL?[0-9]/) return symbol
    sub(/^_ZL?/, "", symbol)
    length_ = symbol + 0
    sub(/^[0-9]+/, "", symbol)
    rest = substr(symbol, length_ + 1)
    return substr(symbol, 1, length_)
}

# Is double among its template arguments and parameters? Values as in Li64E and names with their lengths hold no types.
function of_doubles(symbol,    n) {
    plain(symbol)
    gsub(/L[a-z][n0-9]*E/, "", rest)
    while (match(rest, /[0-9]+[a-zA-Z_]/)) {
        n = substr(rest, RSTART) + 0
        rest = substr(rest, 1, RSTART - 1) substr(rest, RSTART + RLENGTH - 1 + n)
    }
    return rest ~ /d/
}

function matches(name, pattern) {
    if (pattern !~ /\*$/) return name == pattern
    pattern = substr(pattern, 1, length(pattern) - 1)
    return substr(name, 1, length(pattern)) == pattern
}

# The first line of the budget that is for this kernel; 0: none
function line_of(name,    i) {
    for (i = 1; i <= lines; i++) if (matches(name, pattern[i])) { used[i] = 1; return i }
    return 0
}

function number_before(word,    i) {
    for (i = 2; i <= NF; i++) if ($i ~ "^" word && $(i - 1) ~ /^[0-9]+$/) return $(i - 1) + 0
    return 0
}

function raise(table, name, value) { if (value > table[name] + 0) table[name] = value }

# ---- the budget

FNR == 1 { file++ }
file == 1 {
    sub(/#.*/, "")
    if (NF == 0) next
    lines++
    pattern[lines] = $1
    limit[lines, "registers"] = $2; limit[lines, "stack"] = $3; limit[lines, "spills"] = $4; limit[lines, "shared"] = $5
    for (i = 6; i <= NF; i++)
        if (sub(/^wgmma=/, "", $i)) least[lines] = $i
        else if (sub(/^tma=/, "", $i)) least_bulk[lines] = $i
        else flag[lines, $i] = 1
    next
}

# ---- ptxas

file == 2 && /Compiling entry function/ {
    split($0, part, "'")
    symbol = part[2]; arch = part[4]
    kernels[symbol] = 1
}
file == 2 && /bytes stack frame/ {
    raise(stack, symbol, number_before("bytes"))
    split($0, part, ",")
    spill = part[2] + part[3]
    raise(spills, symbol, spill)
}
file == 2 && /Used [0-9]+ registers/ {
    raise(registers, symbol, number_before("registers"))
    if (arch ~ /^sm_90/) at_first[symbol] = number_before("registers")
    if (match($0, /[0-9]+ bytes smem/)) raise(shared, symbol, substr($0, RSTART) + 0)
}

# ---- PTX

file == 3 && /\.entry / { entry = $0; sub(/.*\.entry /, "", entry); sub(/\(.*/, "", entry); here = bulk_here = 0 }
file == 3 && /^\.maxntid / { split($0, part, /[ ,]+/); threads[entry] = part[2] * (part[3] ? part[3] : 1) * (part[4] ? part[4] : 1) }
file == 3 && /^\.func|^\.visible \.func|^\.weak \.func/ { entry = "" }
file == 3 && /mma\.sync/ { mma[entry] = 1 }
file == 3 && /wgmma\.mma_async/ { raise(wgmma, entry, ++here) }           # the file holds several architectures
file == 3 && /setmaxnreg/ { shares[entry] = 1 }
file == 3 && /cp\.async\.bulk\.tensor/ { raise(bulk, entry, ++bulk_here) }
file == 3 && /^[ \t]*(@%p[0-9]+ )?[a-z0-9.]+\.f64/ { f64[entry] = 1 }

# ---- the verdict

function over(symbol, name, i, what, value) {
    if (value > limit[i, what] + 0) print name " (" symbol "): " what " " value ", the budget is " limit[i, what]
}

END {
    for (symbol in kernels) {
        name = plain(symbol)
        i = line_of(name)
        if (mode == "--budget") {
            raise(most_registers, name, registers[symbol]); raise(most_stack, name, stack[symbol])
            raise(most_spills, name, spills[symbol]); raise(most_shared, name, shared[symbol])
            if (mma[symbol]) any_mma[name] = 1
            if (wgmma[symbol]) any_wgmma[name] = 1
            if (bulk[symbol]) any_bulk[name] = 1
            if (!(name in least_wgmma && least_wgmma[name] < wgmma[symbol] + 0)) least_wgmma[name] = wgmma[symbol] + 0
            if (!(name in fewest_bulk && fewest_bulk[name] < bulk[symbol] + 0)) fewest_bulk[name] = bulk[symbol] + 0
            if (f64[symbol] && !of_doubles(symbol)) any_f64[name] = 1
            continue
        }
        if (!i) { print name " (" symbol "): no line in the budget; it takes " registers[symbol] " registers, " stack[symbol] + 0 " bytes of stack, " spills[symbol] + 0 " of spills, " shared[symbol] + 0 " shared"; continue }
        over(symbol, name, i, "registers", registers[symbol]); over(symbol, name, i, "stack", stack[symbol])
        over(symbol, name, i, "spills", spills[symbol]); over(symbol, name, i, "shared", shared[symbol])
        if (i in least && wgmma[symbol] + 0 < least[i]) print name " (" symbol "): " wgmma[symbol] + 0 " wgmma in its PTX, the budget requires " least[i]
        if (i in least_bulk && bulk[symbol] + 0 < least_bulk[i]) print name " (" symbol "): " bulk[symbol] + 0 " bulk copies in its PTX, the budget requires " least_bulk[i]
        # A block shares the registers that it was launched with: with fewer than fit, setmaxnreg.inc would wait for ever.
        if (symbol in shares && symbol in threads && at_first[symbol] + 0 != int(65536 / threads[symbol] / 8) * 8)
            print name " (" symbol "): " at_first[symbol] + 0 " registers at first, setmaxnreg needs " int(65536 / threads[symbol] / 8) * 8
        if (((i, "mma") in flag) && !mma[symbol] && symbol !~ /I[fd]/) print name " (" symbol "): no mma.sync in its PTX"
        if (f64[symbol] && !((i, "f64") in flag) && !of_doubles(symbol)) print name " (" symbol "): computes in double, though nothing it is given is"
    }
    if (mode == "--budget") {
        for (name in most_registers)
            printf "%-32s %3d %5d %5d %6d%s%s%s%s\n", name, int((most_registers[name] + 7) / 8) * 8, most_stack[name], most_spills[name], most_shared[name],
                   name in any_mma ? " mma" : "", name in any_wgmma ? " wgmma=" least_wgmma[name] : "",
                   name in any_bulk ? " tma=" fewest_bulk[name] : "", name in any_f64 ? " f64" : "" | "sort"
        close("sort")
        exit
    }
    for (i = 1; i <= lines; i++) if (!(i in used)) print "the budget's " pattern[i] ": there is no such kernel"
}
