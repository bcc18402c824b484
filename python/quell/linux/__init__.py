"""Parts that need Linux: network namespaces, NAT, real TCP, the kernel's features."""
