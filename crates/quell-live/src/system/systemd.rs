//! What systemd is told (sd_notify(3)): that all runs, and again and again that it still does.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// systemd's socket, where it started us.
pub struct Systemd(Option<(UnixDatagram, SocketAddr)>);

impl Systemd {
    /// Connected, where NOTIFY_SOCKET says where.
    pub fn new() -> Self {
        let path = std::env::var("NOTIFY_SOCKET").unwrap_or_default();
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&path),
        };
        let socket = UnixDatagram::unbound();
        let both = address.ok().filter(|_| !path.is_empty()).zip(socket.ok());
        Self(both.map(|(address, socket)| (socket, address)))
    }

    /// Says it; where systemd is not there or does not take it, nothing happens.
    pub fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.0 {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }
}
