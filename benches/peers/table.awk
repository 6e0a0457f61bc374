# From lines of JSON to a Markdown table of medians, with each library's ratio to ours in brackets.

function number(name) {
    return match($0, "\"" name "\":[0-9.]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : -1
}

function text(name) {
    return match($0, "\"" name "\":\"[^\"]*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : ""
}

function middle(key, n,   i, j, x, list) {
    for (i = 1; i <= n; i++) {
        x = values[key, i]
        for (j = i - 1; j > 0 && list[j] > x; j--) list[j + 1] = list[j]
        list[j + 1] = x
    }
    return list[int((n + 1) / 2)]
}

function add(key, value) {
    values[key, ++count[key]] = value
}

function cell(of, which, name,   key, own, value) {
    key = name SUBSEP which SUBSEP of
    if (!(key in count)) return "-"
    value = middle(key, count[key])
    if (name == "tidelock") return sprintf("%.0f", value)
    key = "tidelock" SUBSEP which SUBSEP of
    own = middle(key, count[key])
    return own > 0 ? sprintf(value < own ? "%.0f (%.2f)" : "%.0f (%.1f)", value, value / own) : sprintf("%.0f", value)
}

/^\{/ {
    name = text("peer")
    if (name == "") name = "tidelock"
    if (!(name in known)) { known[name]; names[++libraries] = name }
    which = "F " number("f") ", M " number("m")
    if (!(which in seen)) { seen[which]; cases[++different] = which }
    for (i = 1; i <= columns; i++) {
        key = name SUBSEP which SUBSEP column[i]
        add(key, number(column[i]))
    }
    if (name == "tidelock") {
        add("(the floor)" SUBSEP which SUBSEP "server_us", number("floor_us"))
        add("(the floor)" SUBSEP which SUBSEP "client_us", number("floor_client_us"))
    }
}

BEGIN {
    columns = split("server_us bytes_per_client client_us server_allocs client_allocs", column, " ")
}

END {
    names[++libraries] = "(the floor)"
    print "| case | library | server µs | bytes per client | client µs | server allocations | client allocations |"
    print "|---|---|--:|--:|--:|--:|--:|"
    for (c = 1; c <= different; c++)
        for (l = 1; l <= libraries; l++) {
            row = "| " cases[c] " | " names[l] " |"
            for (i = 1; i <= columns; i++) row = row " " cell(column[i], cases[c], names[l]) " |"
            print row
        }
}
