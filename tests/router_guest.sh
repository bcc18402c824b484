# Flows and a ping through a router's bottleneck, each of some queues in turn, in network namespaces: c - r - s.
#
#   router_guest.sh RATE DELAY SECONDS FLOWS CONTROL QUEUE...
#
# DELAY is netem's in each direction; CONTROL is a congestion control, or several in turn (`cubic,bbr`). Prints for each queue its words, the
# goodput of each flow in kbit/s, the mean of the ping in ms and of the backlog in bytes (both after 3 s), and for those of quell's their gauges.
set -e
rate=$1 delay=$2 seconds=$3 flows=$4 control=$5
shift 5
echo 1 >/proc/sys/net/ipv4/ip_forward
wire() { # NAMESPACE NETWORK; packets of one segment, as on a wire
    ip netns add $1
    ip link add r$1 gso_max_segs 1 type veth peer name e netns $1
    ip addr add $2.1/24 dev r$1
    ip link set r$1 up
    ip -n $1 link set e gso_max_segs 1
    ip -n $1 addr add $2.2/24 dev e
    ip -n $1 link set lo up
    ip -n $1 link set e up
    ip -n $1 route add default via $2.1
    tc -n $1 qdisc add dev e root netem delay $delay limit 10000
    # No flow starts from what those of the queue before have found.
    ip netns exec $1 sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save'
}
wire c 10.1.0
wire s 10.2.0

measure() { # WORDS
    ip netns exec s /bin/traffic sink 5000 &
    sink=$!
    ip netns exec c /bin/traffic send 10.2.0.2 5000 $control $flows $seconds 3 >/tmp/flows &
    sender=$!
    ip netns exec c ping -i 0.05 -c $((seconds * 20 - 20)) 10.2.0.2 >/tmp/ping &
    ping=$!
    sleep 3
    quell-live watch rs --every 10ms --duration $((seconds - 4))s --out /tmp/queues.csv --quiet
    wait $sender
    wait $ping || true
    kill $sink
    wait $sink 2>/dev/null || true
    echo "queue $1"
    echo "flows $(cat /tmp/flows)"
    # seq=60 is sent after 3 s.
    awk '/ seq=/ { for (i = 1; i <= NF; i++) { split($i, x, "="); if (x[1] == "seq") s = x[2]; if (x[1] == "time") t = x[2] }
        if (s > 60) { n++; sum += t } } END { printf "ping %.3f\n", sum / n }' /tmp/ping
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { b = $at["backlog_bytes"] + 0; if ($at["time"] != time) { n++; sum += most; most = 0; time = $at["time"] }
        if (b > most) most = b } END { sum += most; printf "backlog %.0f\n", sum / n }' /tmp/queues.csv
    rm /tmp/queues.csv
}
for queue in "$@"; do
    case $queue in
    "quell "*)
        quell-live attach rs ${queue#quell } --rate $rate --quiet
        measure "$queue"
        echo "gauges $(quell-live attach rs)"
        quell-live detach rs --quiet
        ;;
    cake*)
        tc qdisc add dev rs root $queue bandwidth $rate
        measure "$queue"
        tc qdisc del dev rs root
        ;;
    *)
        tc qdisc add dev rs root handle 1: htb default 1
        tc class add dev rs parent 1: classid 1:1 htb rate $rate
        tc qdisc add dev rs parent 1:1 handle 2: $queue
        measure "$queue"
        tc qdisc del dev rs root
        ;;
    esac
done
echo "uptime $(cat /proc/uptime)"
