//! The UDP sockets of a session over datagrams. Both are non-blocking.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};

use socket2::SockRef;

/// The receive buffer to request from the kernel: a 4K key frame arrives in one burst.
const DATAGRAM_BYTES: usize = 4 << 20;

/// The most datagrams from other senders to skip in a row.
const MOST_FOREIGN: u32 = 256;

/// How many pairs of ports to try.
const MOST_PAIRS: u32 = 64;

/// The sockets for RTP and RTCP. Datagrams from other addresses than the camera's are ignored.
#[derive(Debug)]
pub struct DatagramPorts {
    pub rtp: UdpSocket,
    pub rtcp: UdpSocket,
    camera: IpAddr,
}

impl DatagramPorts {
    /// Opens a pair of ports at `own`, an even one and the next (RFC 3550 section 11), for the camera's datagrams.
    pub fn open(own: IpAddr, camera: IpAddr) -> io::Result<Self> {
        let camera = camera.to_canonical();
        let mut tries = 0;
        loop {
            let rtp = UdpSocket::bind((own, 0))?;
            let port = rtp.local_addr()?.port();
            let pair = (port % 2 == 0).then(|| UdpSocket::bind((own, port + 1)));
            tries += 1;
            match pair {
                Some(Ok(rtcp)) => {
                    rtp.set_nonblocking(true)?;
                    rtcp.set_nonblocking(true)?;
                    // The kernel grants as much as its limit allows.
                    let _ = SockRef::from(&rtp).set_recv_buffer_size(DATAGRAM_BYTES);
                    return Ok(Self { rtp, rtcp, camera });
                }
                Some(Err(error)) if tries > MOST_PAIRS => return Err(error),
                None if tries > MOST_PAIRS => return Err(io::Error::other("no even port is free")),
                _ => {}
            }
        }
    }

    /// Returns the RTP port.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.rtp.local_addr()?.port())
    }

    /// Sends a datagram to each of the camera's ports, so that routers let the camera's datagrams through.
    pub fn open_way(&self, (rtp, rtcp): (u16, u16), report: &[u8]) {
        /// An RTP packet without a payload.
        const EMPTY: [u8; 12] = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // If a report is lost, the next one replaces it.
        let _ = self.rtp.send_to(&EMPTY, (self.camera, rtp));
        self.send_report(rtcp, report);
    }

    /// Sends an RTCP packet to the camera's port.
    pub fn send_report(&self, port: u16, report: &[u8]) {
        let _ = self.rtcp.send_to(report, (self.camera, port));
    }

    /// Reads the camera's next datagram from a socket.
    pub fn receive<'b>(&self, socket: &UdpSocket, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        // Other senders may never stop.
        for _ in 0..MOST_FOREIGN {
            match socket.recv_from(buffer) {
                Ok((length, from)) if from.ip().to_canonical() == self.camera => return buffer.get(..length),
                Ok(_) => {}
                // The camera's port is closed, as an answer to a report. That does not end the video.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::Ipv4Addr;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn pair() -> DatagramPorts {
        DatagramPorts::open(HERE, HERE).unwrap()
    }

    /// Reads the next RTP datagram, which may still be in transit.
    fn receive(ports: &DatagramPorts) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(120);
        let mut buffer = [0; 64];
        loop {
            if let Some(datagram) = ports.receive(&ports.rtp, &mut buffer) {
                return datagram.to_vec();
            }
            assert!(Instant::now() < until, "no datagram came");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_pair_begins_with_an_even_port() {
        let pairs: Vec<_> = (0..8).map(|_| pair()).collect();
        for ports in &pairs {
            let port = ports.port().unwrap();
            assert_eq!((port % 2, ports.rtcp.local_addr().unwrap().port()), (0, port + 1));
        }
    }

    #[test]
    fn only_datagrams_of_the_camera_are_read() {
        let ports = pair();
        let to = ports.rtp.local_addr().unwrap();
        let other = UdpSocket::bind("127.0.0.2:0").unwrap();
        let camera = UdpSocket::bind((HERE, 0)).unwrap();
        assert_eq!(ports.receive(&ports.rtp, &mut [0; 64]), None);
        other.send_to(b"foreign", to).unwrap();
        camera.send_to(b"own", to).unwrap();
        assert_eq!(receive(&ports), b"own");
        assert_eq!(ports.receive(&ports.rtp, &mut [0; 64]), None);
    }

    #[test]
    fn the_way_is_opened_on_both_ports_of_the_camera() {
        let (ports, camera) = (pair(), pair());
        let port = camera.port().unwrap();
        ports.open_way((port, port + 1), b"report");
        assert_eq!(receive(&camera), [&[0x80][..], &[0; 11]].concat());
        let mut buffer = [0; 64];
        camera.rtcp.set_nonblocking(false).unwrap();
        camera.rtcp.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let (length, from) = camera.rtcp.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"report"[..], ports.rtcp.local_addr().unwrap()));
    }
}
