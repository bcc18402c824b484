# What quell watch takes for a sample of one queue each 10 ms, in instructions: of the kernel's fq_codel, and of hush with its gauges.
set -e
ip link add sunk numtxqueues 1 type dummy
ip link set sunk up
one() { # NAME
    quell-live watch sunk --every 10ms --duration 13s --out /tmp/samples.csv --quiet &
    watch=$!
    sleep 2
    begin=$(cut -d' ' -f1 /proc/$watch/schedstat)
    sleep 10
    end=$(cut -d' ' -f1 /proc/$watch/schedstat)
    wait $watch
    echo "$1: $(((end - begin) / 1000)) instructions"
    rm /tmp/samples.csv
}
tc qdisc add dev sunk root handle 1: fq_codel
one fq_codel
tc qdisc del dev sunk root
quell-live attach sunk hush noecn --quiet
one hush
