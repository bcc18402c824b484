# What a packet costs in each of some queues, in instructions, which are nanoseconds in this guest: pktgen sends COUNT UDP packets
# of FLOWS flows through the queue of a device that throws them away. No packet waits; what the device and pktgen take is subtracted.
#
#   cost_guest.sh COUNT FLOWS QUEUE...
set -e
count=$1 flows=$2
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
one() { # QUEUE: sets `took`, instructions a packet
    case $1 in
    none) ;;
    "quell "*) quell-live attach sunk ${1#quell } --quiet ;;
    *) tc qdisc add dev sunk root handle 1: $1 ;;
    esac
    generator pgctrl start
    took=$(sed -n 's/^Result: OK: \([0-9]*\)(.*/\1/p' /proc/net/pktgen/sunk)
    took=$((took * 1000 / count))
    case $1 in
    none) ;;
    "quell "*) quell-live detach sunk --quiet ;;
    *) tc qdisc del dev sunk root ;;
    esac
}
# The first packets of all are dearer: memory is fetched for the first time.
one none
one none
without=$took
echo "without a queue: $without instructions a packet"
for queue in "$@"; do
    one "$queue"
    echo "$queue: $((took - without)) more"
done
