# What tests/test_attach.py does with `quell attach` as root of a kernel of its own: each command after its line, as `tc` shows the result.
step() { # COMMAND...: prints it, what it says and its exit status
    echo "== $*"
    "$@" 2>&1 || echo "status $?"
}
ip link add va numtxqueues 1 type veth peer name vb
ip link add vm numtxqueues 4 type veth peer name vn
for device in va vb vm vn; do ip link set $device up; done

step quell-live attach va
step quell-live attach nope hush
step quell-live attach va hosh
step quell-live attach va hush --rate 0mbit
step quell-live attach va hush --rate 8mbit --dry-run
step tc qdisc show dev va
step quell-live attach va hush --rate 8mbit
step tc qdisc show dev va
step quell-live attach va hush --rate 9mbit
step quell-live attach vb codel --limit 100
step quell-live detach va
step tc qdisc show dev va
step tc qdisc show dev vb
step quell-live detach va
step quell-live detach vb

tc qdisc replace dev va root handle 7: fq_codel limit 77 target 9ms
tc filter add dev va parent 7: prio 5 u32 match u32 0 0 classid 7:1
step quell-live attach va hush --rate 8mbit --replace
step tc filter show dev va parent 7:
tc filter del dev va parent 7:
step quell-live attach va hush --rate 8mbit
step quell-live attach va hush --rate 8mbit --replace
step quell-live attach va fq_codel --rate 8mbit
step tc qdisc show dev va
step quell-live detach va
step tc qdisc show dev va
tc qdisc replace dev va root handle 8: htb
step quell-live attach va hush --rate 8mbit --replace
tc qdisc del dev va root

step quell-live attach va hush --rate 8mbit
step sh -c 'quell-live attach va >/dev/full'
tc qdisc replace dev va root handle 5: pfifo limit 9
step quell-live attach va
step quell-live detach va
step tc qdisc show dev va
tc qdisc del dev va root

tc qdisc replace dev vm root handle 1: mq
step quell-live attach vm hush
step quell-live attach vm hush --replace
step tc qdisc show dev vm
step quell-live detach vm
step tc qdisc show dev vm
step quell-live attach vm hush --rate 8mbit --replace
step tc qdisc show dev vm

# Another program sets a queue while quell loads its own.
ip link add vr numtxqueues 1 type veth peer name vs
for device in vr vs; do ip link set $device up; done
tc qdisc replace dev vr root handle 1: pfifo limit 9
(until ls /run/quell/attach-*-vr.lock; do :; done; tc qdisc replace dev vr root handle 5: pfifo limit 77) >/dev/null 2>&1 &
step quell-live attach vr hush --rate 8mbit --replace
wait
step tc qdisc show dev vr
step quell-live detach vr

ip link del vm
step quell-live detach vm
ls /run/quell
cat /proc/uptime
