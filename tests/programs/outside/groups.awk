# Records in arrays by key, made and dropped so many times (-v rounds=N); one line that depends on them. For gawk.
BEGIN {
    x = 1
    for (r = 1; r <= rounds; r++) {
        for (i = 0; i < 40000; i++) {
            x = (x * 69069 + 1) % 4294967296
            key = "k" (x % 150000)
            count[key]++
            last[key] = r " " key " " substr("abcdefghijklmnopqrstuvwxyz", 1 + x % 7) x
        }
        if (r % 3 == 0) for (i = r % 7; i < 150000; i += 7) { delete count["k" i]; delete last["k" i] }
        # In an order that does not depend on where the arrays lie.
        for (i = 0; i < 150000; i++) if (("k" i) in last) sum = (sum * 31 + count["k" i] + length(last["k" i])) % 1000000007
    }
    print sum, length(last), last["k" (x % 150000)]
}
