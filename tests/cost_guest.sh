# What a packet costs in each of some queues, in instructions, which are nanoseconds in this guest: pktgen sends COUNT UDP packets
# of FLOWS flows through the queue of a device that throws them away. No packet waits; what the device and pktgen take is subtracted.
# `quell ...` is a queue for quell-live attach, any other is one for tc.
#
#   cost_guest.sh COUNT FLOWS QUEUE...
set -e
flows=$2 count=$1
shift 2
ip link add sunk numtxqueues 1 type dummy
ip link set sunk up
generator() { # FILE LINE...
    file=/proc/net/pktgen/$1
    shift
    for line in "$@"; do echo "$line" >$file; done
}
generator kpktgend_0 rem_device_all "add_device sunk"
generator sunk "count $count" "xmit_mode queue_xmit" "delay 0" "clone_skb 0" "pkt_size 1500" "dst 10.9.0.2" "src_min 10.9.0.1" "src_max 10.9.0.1" \
    "udp_src_min 1000" "udp_src_max $((1000 + flows))" "flag UDPSRC_RND" "dst_mac 02:00:00:00:00:01"
one() { # QUEUE: sets `first`, `low`, `middle` and `high`: instructions a packet in the first of four runs, and in the three after it
    case $1 in
    none) ;;
    "quell "*) quell-live attach sunk ${1#quell } --quiet ;;
    *) tc qdisc add dev sunk root handle 1: $1 ;;
    esac
    # The first packets of a queue are dearer: memory is fetched for the first time.
    first= runs=
    for _ in 1 2 3 4; do
        generator pgctrl start
        took=$(sed -n 's/^Result: OK: \([0-9]*\)(.*/\1/p' /proc/net/pktgen/sunk)
        took=$((took * 1000 / count))
        if [ -z "$first" ]; then first=$took; else runs="$runs $took"; fi
    done
    case $1 in
    none) ;;
    "quell "*) quell-live detach sunk --quiet ;;
    *) tc qdisc del dev sunk root ;;
    esac
    set -- $(printf '%s\n' $runs | sort -n)
    low=$1 middle=$2 high=$3
}
one none
without=$middle
echo "without a queue: $without instructions a packet ($low to $high; $first at first)"
for queue in "$@"; do
    one "$queue"
    echo "$queue: $((middle - without)) more ($((low - without)) to $((high - without)); $((first - without)) at first)"
done
one none
echo "without a queue, again: $middle ($low to $high)"
