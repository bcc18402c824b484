# `quell steer --with bpf` on an attached FIFO, for tests/test_attach.py: two flows into network namespace s, through va at 8 Mbit/s. Each step's
# lines come after its name.
set -e
step() { # COMMAND...: prints it, what it says and its exit status
    echo "== $*"
    "$@" 2>&1 || echo "status $?"
}
ip netns add s
ip link add va numtxqueues 1 gso_max_segs 1 type veth peer name e netns s
ip addr add 10.2.0.1/24 dev va
ip link set va up
ip -n s link set e gso_max_segs 1
ip -n s addr add 10.2.0.2/24 dev e
ip -n s link set e up
tc -n s qdisc add dev e root netem delay 20ms limit 10000
steer="quell-live steer va rlaqm --with bpf"
step $steer
step $steer --ecn
tc qdisc add dev va root pfifo
step $steer --dry-run --rate 8mbit --duration 100ms
tc qdisc del dev va root
quell-live attach va fifo --rate 8mbit --quiet
step unshare -U -r $steer
ip netns exec s /bin/traffic sink 5000 &
/bin/traffic send 10.2.0.2 5000 cubic 2 13 2 >/tmp/flows &
sleep 2
step quell-live watch va --json --duration 100ms --quiet
step $steer --duration 3s
$steer --quiet &
sleep 1
step quell-live watch va --json --every 100ms --duration 5s --quiet
kill -9 $!
sleep 1
step quell-live watch va --json --duration 100ms --quiet
# The queue is taken away while it is steered.
$steer >/tmp/steered 2>&1 &
steering=$!
sleep 1
quell-live detach va --quiet
wait $steering
step cat /tmp/steered
step ls /run/quell
