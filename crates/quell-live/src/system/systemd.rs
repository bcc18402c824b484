//! Notifications to systemd (sd_notify(3)): that the service is ready, and repeatedly that it still
//! runs.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// systemd's notification socket; `None` if NOTIFY_SOCKET is not set, or if there is no such
/// socket.
pub struct Systemd(Option<(UnixDatagram, SocketAddr)>);

impl Systemd {
    /// The socket in NOTIFY_SOCKET, if that is set.
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

    /// Sends a notification, such as `READY=1`; errors are ignored.
    pub fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.0 {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }
}
