# A shell that holds memory of its own and starts children of every kind, so many times.
sum=0
items=()
for ((i = 0; i < $1; i++)); do
    for ((j = 0; j < 200; j++)); do items+=("item $i $j"); done
    square=$(printf '%d' $((i * i)))
    sum=$((sum + square % 97 + $(echo "${items[i * 100]}" | wc -c)))
    ((i % 50 == 49)) && sum=$((sum + $(seq 1 5000 | sort -r | tail -n +4000 | gzip | gunzip | wc -l)))
    ((i % 50 == 48)) && { (exec perl -e 'exit 7') || sum=$((sum + $?)); }
done
echo "$sum ${#items[@]} ${items[777]}"
