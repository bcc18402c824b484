# quell as it is packaged, in the kernel of a guest: packaged_guest.sh PROGRAM. Each command is printed before what it says.
step() { # COMMAND...
    echo "== $*"
    "$@" 2>&1 || echo "status $?"
}
quell() { "$program" "$@"; }
program=$1
# It may lie in the guest's /tmp, over which there is another.
umount /tmp
ip link add va numtxqueues 1 type veth peer name vb
ip link set va up
ip link set vb up

step quell attach va hush --rate 8mbit
step tc qdisc show dev va
step quell attach va
step quell detach va
step tc qdisc show dev va
