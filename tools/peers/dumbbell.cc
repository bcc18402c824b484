// The dumbbell of `make bench` in ns-3: TcpNewReno with SACK and delayed ACKs through a FIFO of 1000 packets.
// dumbbell MBIT FLOWS WARMUP_S END_S     prints: packets cpu_seconds goodput_mbit drops
// The clock is the process's own CPU time between the end of the warm-up and the end.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include "ns3.h"

using namespace ns3;

namespace {

uint64_t g_packets = 0;
uint64_t g_drops = 0;

void CountSent(Ptr<const Packet>)
{
    ++g_packets;
}

void CountDropped(Ptr<const Packet>)
{
    ++g_drops;
}

struct Reading
{
    double cpu;
    uint64_t packets;
    uint64_t drops;
};

Reading Read()
{
    return {CpuSeconds(), g_packets, g_drops};
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 5)
    {
        std::fprintf(stderr, "usage: dumbbell MBIT FLOWS WARMUP_S END_S\n");
        return 2;
    }
    const std::string mbit = argv[1];
    const int flows = std::atoi(argv[2]);
    const double warmup = std::atof(argv[3]);
    const double end = std::atof(argv[4]);

    SetTcp("ns3::TcpNewReno");

    NodeContainer routers(2);
    PointToPointHelper bottleneck;
    // With flow control ns-3 would add a queue discipline above each device; this dumbbell has one FIFO.
    bottleneck.DisableFlowControl();
    bottleneck.SetDeviceAttribute("DataRate", StringValue(mbit + "Mbps"));
    bottleneck.SetChannelAttribute("Delay", StringValue("9900us"));
    bottleneck.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1000p"));
    NetDeviceContainer middle = bottleneck.Install(routers);
    middle.Get(0)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&CountSent));
    middle.Get(0)->TraceConnectWithoutContext("MacTxDrop", MakeCallback(&CountDropped));

    InternetStackHelper stack;
    stack.Install(routers);
    Ipv4AddressHelper address("10.0.0.0", "255.255.255.0");
    address.Assign(middle);

    NodeContainer left(flows);
    NodeContainer right(flows);
    stack.Install(left);
    stack.Install(right);
    const Address any = InetSocketAddress(Ipv4Address::GetAny(), 5000);
    for (int i = 0; i < flows; ++i)
    {
        // Flow i has a base RTT of 20 ms + i * 7 us, as in quell's benchmark, so that no two flows are in step.
        PointToPointHelper access;
        access.DisableFlowControl();
        access.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
        access.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100000p"));
        access.SetChannelAttribute("Delay", TimeValue(NanoSeconds(50000 + 3500 * i)));
        NetDeviceContainer up = access.Install(left.Get(i), routers.Get(0));
        access.SetChannelAttribute("Delay", TimeValue(MicroSeconds(50)));
        NetDeviceContainer down = access.Install(routers.Get(1), right.Get(i));
        address.NewNetwork();
        address.Assign(up);
        address.NewNetwork();
        Ipv4InterfaceContainer sink = address.Assign(down);

        PacketSinkHelper receiver("ns3::TcpSocketFactory", any);
        receiver.Install(right.Get(i)).Start(Seconds(0));
        BulkSendHelper sender("ns3::TcpSocketFactory", InetSocketAddress(sink.GetAddress(1), 5000));
        sender.SetAttribute("SendSize", UintegerValue(1448));
        sender.Install(left.Get(i)).Start(Seconds(0));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Reading first{};
    Simulator::Schedule(Seconds(warmup), [&first] { first = Read(); });
    Simulator::Stop(Seconds(end));
    Simulator::Run();
    const Reading last = Read();
    const uint64_t packets = last.packets - first.packets;
    std::printf("%llu %.4f %.3f %llu\n",
                static_cast<unsigned long long>(packets),
                last.cpu - first.cpu,
                packets * 1448 * 8e-6 / (end - warmup),
                static_cast<unsigned long long>(last.drops - first.drops));
    return 0;
}
