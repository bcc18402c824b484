# The dumbbell of `make bench` in ns-2: SACK TCP (Agent/TCP/Sack1, delayed ACKs) through a FIFO of 1000 packets.
# ns dumbbell.tcl MBIT FLOWS WARMUP_S END_S     prints: packets cpu_seconds goodput_mbit drops
# The clock is the process's own CPU time between the end of the warm-up and the end.
lassign $argv mbit flows warmup end

proc cpu_s {} {
    set f [open /proc/self/schedstat]
    set ns [lindex [read $f] 0]
    close $f
    expr {$ns * 1e-9}
}

remove-all-packet-headers
add-packet-header IP TCP Flags
set ns [new Simulator]
$ns use-scheduler Heap

# quell's segments: 1448 bytes of payload, 52 of headers and 14 of Ethernet; ns-2's own acknowledgement is 40 bytes.
Agent/TCP set packetSize_ 1448
Agent/TCP set tcpip_base_hdr_size_ 66
Agent/TCP set window_ 4144
Agent/TCP set maxburst_ 0
Agent/TCP set windowInit_ 10
Agent/TCP set minrto_ 0.2
Agent/TCP set tcpTick_ 0.001
Agent/TCPSink/Sack1/DelAck set interval_ 0.04
Queue set limit_ 1000000

set left [$ns node]
set right [$ns node]
$ns duplex-link $left $right ${mbit}Mb 9.9ms DropTail
$ns queue-limit $left $right 1000

set sources {}
for {set i 0} {$i < $flows} {incr i} {
    # Flow i has a base RTT of 20 ms + i * 7 us, as in quell's benchmark, so that no two are in step.
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $left 10Gb [expr {0.05 + $i * 0.0035}]ms DropTail
    $ns duplex-link $right $to 10Gb 0.05ms DropTail
    set tcp [new Agent/TCP/Sack1]
    set sink [new Agent/TCPSink/Sack1/DelAck]
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at 0 "$ftp start"
    lappend sources $tcp
}

# Packets delivered, at no cost per packet: the senders' acknowledged packets.
proc delivered {} {
    set sum 0
    foreach tcp $::sources { incr sum [expr {max(0, int([$tcp set ack_]) + 1)}] }
    return $sum
}
proc resent {} {
    set sum 0
    foreach tcp $::sources { incr sum [expr {int([$tcp set nrexmitpack_])}] }
    return $sum
}
$ns at $warmup { set packets0 [delivered]; set resent0 [resent]; set cpu0 [cpu_s] }
$ns at $end {
    set cpu [expr {[cpu_s] - $cpu0}]
    set packets [expr {[delivered] - $packets0}]
    puts [format "%d %.4f %.3f %d" $packets $cpu \
        [expr {$packets * 1448 * 8e-6 / ($end - $warmup)}] [expr {[resent] - $resent0}]]
    exit 0
}
$ns run
