# What `quell watch` shows of attached queues, for tests/test_attach.py: two flows of 8 Mbit/s into network namespace s, through va. Each
# step's lines come after its name.
set -e
step() { # COMMAND...: prints it, what it says and its exit status
    echo "== $*"
    "$@" 2>&1 || echo "status $?"
}
ip link set lo up
ip netns add s
ip link add va numtxqueues 1 gso_max_segs 1 type veth peer name e netns s
ip addr add 10.2.0.1/24 dev va
ip link set va up
ip -n s link set e gso_max_segs 1
ip -n s addr add 10.2.0.2/24 dev e
ip -n s link set e up
tc -n s qdisc add dev e root netem delay 20ms limit 10000
ip link add vb numtxqueues 1 type veth peer name vc
ip link set vb up
ip link set vc up

tc qdisc replace dev va root handle 7: fq_codel
quell-live attach va hush --rate 8mbit --replace --quiet
quell-live attach vb fifo --quiet
ip netns exec s /bin/traffic sink 5000 &
/bin/traffic send 10.2.0.2 5000 cubic 2 9 2 >/tmp/flows &
sleep 3
step quell-live watch va vb --json --every 200ms --duration 600ms --quiet
quell-live watch va --every 200ms --duration 400ms --out /tmp/one.csv --quiet
step cat /tmp/one.csv
step sh -c "quell-live watch va --duration 100ms | cat"
# The guest's console is a terminal.
stty cols 200 rows 20 </dev/console
step sh -c "quell-live watch va --duration 100ms >/dev/console"
quell-live watch va vb --metrics 9131 --quiet --duration 1s &
watch=$!
sleep 0.5
step wget -q -O - http://127.0.0.1:9131/metrics
wait $watch
# Without rights over the kernel's BPF it is said once, and the rest works.
step unshare -U -r quell-live watch va vb --json --every 100ms --duration 300ms

# While it watches, the queue is detached, another one is attached, and replaced by one more.
quell-live watch va --every 20ms --json --duration 2s --quiet >/tmp/lines &
watch=$!
sleep 0.4
quell-live detach va --quiet
sleep 0.4
quell-live attach va codel --rate 8mbit --replace --quiet
sleep 0.4
quell-live attach va hush --rate 8mbit --quiet
wait $watch
step cat /tmp/lines
step quell-live detach va vb
