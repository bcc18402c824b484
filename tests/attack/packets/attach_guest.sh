# A flood out of a device with one of quell's queues in the kernel, for tests/attack/packets/test_attached.py: each
# named queue is attached, flooded with each kind of frames beside a TCP flow, checked and detached again.
ip netns add far
ip link add va numtxqueues 1 type veth peer name vb netns far
ip addr add 10.7.0.1/24 dev va
ip link set va up
ip -n far addr add 10.7.0.2/24 dev vb
ip -n far link set vb up
ip -n far link set lo up
ip netns exec far traffic sink 5000 &
sink=$!
cat /proc/uptime >/dev/null
free() { grep MemAvailable /proc/meminfo | tr -dc 0-9; }
for queue; do
    quell-live attach va $queue --rate 20mbit --quiet || echo "== $queue refused"
    for kind in flows bytes extensions tags large; do
        before=$(free)
        traffic send 10.7.0.2 5000 cubic 1 6 0 >/tmp/goodput &
        flow=$!
        sent=0
        for k in 1 2 3 4 5 6 7 8 9 10 11 12; do
            sent=$((sent + $(flood va $kind 300)))
            sleep 0.3
        done
        wait $flow
        echo "== $queue $kind $sent $(cat /tmp/goodput) $((before - $(free)))"
        quell-live attach va
        tc -s qdisc show dev va
    done
    quell-live detach va --quiet
    tc qdisc show dev va
done
kill $sink
echo "== end"
dmesg | grep -E 'BUG:|WARNING:|Oops|Kernel panic|Call Trace|stall|use-after-free' || true
