# Marks by what `quell attach` puts into the kernel, for tests/test_attach.py: a router of 8 Mbit/s between two hosts, c - r - s, in network
# namespaces; two flows that use ECN through each of the queues that are named, for four seconds. The first one
# once more behind a bridge, while a program captures what arrives there.
#
#   mark_guest.sh QUEUE...
#
# Prints for each queue its words, what the receiver counts (IpExt of /proc/net/netstat), its gauges after two seconds and in the end, quell's filters, and what is left.
set -e
echo 1 >/proc/sys/net/ipv4/ip_forward
for host in c s; do
    [ $host = c ] && network=10.1.0 || network=10.2.0
    ip netns add $host
    ip link add r$host numtxqueues 1 gso_max_segs 1 type veth peer name e netns $host
    ip addr add $network.1/24 dev r$host
    ip link set r$host up
    ip -n $host link set e gso_max_segs 1
    ip -n $host addr add $network.2/24 dev e
    ip -n $host link set lo up
    ip -n $host link set e up
    ip -n $host route add default via $network.1
    tc -n $host qdisc add dev e root netem delay 10ms limit 10000
    ip netns exec $host sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'
done
# Packets with CE that host s got: the header of IpExt names the columns.
marked() {
    ip netns exec s awk '$1 == "IpExt:" { if (!n) { for (i = 1; i <= NF; i++) if ($i == "InCEPkts") n = i } else print $n }' /proc/net/netstat
}
# The same hosts beside the router, through a bridge; whatever arrives there from c is captured.
ip link add lan type bridge
for host in c s; do
    [ $host = c ] && address=10.3.0.1 || address=10.3.0.2
    ip link add b$host numtxqueues 1 gso_max_segs 1 type veth peer name p netns $host
    ip link set b$host master lan
    ip link set b$host up
    ip -n $host link set p gso_max_segs 1
    ip -n $host addr add $address/24 dev p
    ip -n $host link set p up
    tc -n $host qdisc add dev p root netem delay 10ms limit 10000
done
ip link set lan up
traffic capture bc &
capture=$!
measure() { # DEV ADDRESS NAME WORDS: what two flows to ADDRESS through a queue on DEV do
    dev=$1 address=$2 name=$3 queue=$4
    echo "measured $name"
    quell-live attach $dev $queue --rate 8mbit --quiet
    echo "filters $(tc filter show dev $dev egress | grep -c 'quell')"
    before=$(marked)
    ip netns exec s /bin/traffic sink 5000 &
    sink=$!
    ip netns exec c /bin/traffic send $address 5000 cubic 2 4 2 >/tmp/flows &
    sender=$!
    sleep 2
    echo "early $(quell-live attach $dev)"
    wait $sender
    echo "flows $(cat /tmp/flows)"
    kill $sink
    wait $sink 2>/dev/null || true
    echo "ce $(($(marked) - before))"
    echo "gauges $(quell-live attach $dev)"
    quell-live detach $dev --quiet
    echo "left $(tc qdisc show dev $dev | tr '\n' ';')"
}
for queue in "$@"; do
    measure rs 10.2.0.2 "$queue" "$queue"
done
measure bs 10.3.0.2 "bridged $1" "$1"
kill $capture

# Filters of other programs, and a clsact that another program created, are kept.
step() { # COMMAND...: prints it, what it says and its exit status
    echo "== $*"
    "$@" 2>&1 || echo "status $?"
}
step quell-live attach rs hush noecn
step tc qdisc show dev rs
step quell-live attach rs hush ecn
step tc filter show dev rs egress
step quell-live attach rs fq_codel
step tc filter show dev rs egress
step quell-live attach rs codel
step tc qdisc show dev rs
step quell-live attach rs fq_codel ecn
tc filter del dev rs egress
step quell-live attach rs fq_codel --limit 50
step quell-live attach rs fq_codel ecn
step quell-live attach rs rlaqm ecn
step tc filter show dev rs egress
step quell-live detach rs
step tc qdisc show dev rs
tc qdisc add dev rs clsact
tc filter add dev rs egress prio 7 protocol ip u32 match u32 0 0 action ok
step quell-live attach rs hush --rate 8mbit
step tc filter show dev rs egress
step quell-live detach rs
step tc filter show dev rs egress
step tc qdisc show dev rs
tc filter del dev rs egress
tc filter add dev rs egress prio 1 protocol ip u32 match u32 0 0 action ok
step quell-live attach rs hush
step quell-live detach rs
tc qdisc del dev rs clsact
# Where clsact cannot be: an ingress discipline.
tc qdisc add dev rs ingress
step quell-live attach rs hush ecn
step tc qdisc show dev rs
step quell-live attach rs hush
step quell-live detach rs
step tc qdisc show dev rs
tc qdisc del dev rs ingress
echo "== files"
ls /run/quell
