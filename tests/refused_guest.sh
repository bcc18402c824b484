# What stays when `quell attach` is refused, interrupted or disturbed, for tests/test_attach.py: each command after its line. `spoilt` is
# quell-live with an object that the kernel's verifier refuses.
step() { # COMMAND...: prints it, what it says and its exit status
    echo "== $*"
    "$@" 2>&1 || echo "status $?"
}
left() { # all that quell could leave on va
    tc qdisc show dev va
    tc filter show dev va egress
    ls /run/quell | grep json
    true
}
ip link add va numtxqueues 1 type veth peer name vb
ip link set va up
ip link set vb up

step spoilt attach va fq_codel --rate 8mbit
step left
step unshare -U -r quell-live attach va hush --rate 8mbit
step left
# Two at once: one or both succeed.
quell-live attach va hush --rate 8mbit --quiet 2>/tmp/first &
quell-live attach va hush --rate 8mbit --quiet 2>/tmp/second
wait
step quell-live detach va
step left
# A process is killed at many moments; first with nothing there, then with a queue of its own to replace.
killed() { # MILLISECONDS NAME
    quell-live attach va $2 --quiet 2>/dev/null &
    victim=$!
    sleep $(printf 0.%03d $1)
    kill -9 $victim 2>/dev/null || echo "ended before $1 ms"
    wait $victim 2>/dev/null
}
for ms in 1 3 10 20 40 60 80 100 130 160 200 250 300 400; do
    killed $ms hush
    tc qdisc show dev va | grep -o 'quell_[a-z_]*'
    quell-live detach va --quiet 2>/dev/null
    left >/tmp/left
    [ "$(cat /tmp/left)" = "qdisc noqueue 0: root refcnt 2 " ] || echo "left after $ms ms: $(cat /tmp/left)"
done
for ms in 1 3 10 20 40 60 80 100 130 160 200 250 300 400; do
    quell-live attach va fq_codel --quiet
    killed $ms hush
    tc qdisc show dev va | grep -o 'quell_[a-z_]*'
    quell-live detach va --quiet || echo "detach failed after $ms ms"
    left >/tmp/left
    [ "$(cat /tmp/left)" = "qdisc noqueue 0: root refcnt 2 " ] || echo "left after $ms ms: $(cat /tmp/left)"
done
step left
