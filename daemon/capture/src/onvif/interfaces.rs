//! The network interfaces for a local search.

use std::ffi::CStr;
use std::io;
use std::net::Ipv4Addr;
use std::ptr;

/// An interface's IPv4 address and its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNetwork {
    /// Name of the interface, such as `eth0`.
    pub interface: String,
    pub address: Ipv4Addr,
    pub netmask: Ipv4Addr,
}

impl LocalNetwork {
    /// Whether `address` is in this network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let network = |address: Ipv4Addr| address.to_bits() & self.netmask.to_bits();
        network(address) == network(self.address)
    }
}

/// Returns the IPv4 networks of interfaces that are up and can multicast, except tunnels, which lead to other networks.
pub fn local_networks() -> io::Result<Vec<LocalNetwork>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is a valid place for a pointer, which the call sets if it succeeds.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut networks = Vec::new();
    let mut next = first.cast_const();
    // SAFETY: `next` is null or an entry of the list, which stays until it is freed below; nothing else has a reference to it.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
        if !has(libc::IFF_UP) || !has(libc::IFF_MULTICAST) || has(libc::IFF_POINTOPOINT) {
            continue;
        }
        // SAFETY: both are null or point to an address of the length that its family has, as getifaddrs(3) says.
        let (address, netmask) = unsafe { (ipv4(entry.ifa_addr), ipv4(entry.ifa_netmask)) };
        if let (Some(address), Some(netmask)) = (address, netmask) {
            // SAFETY: an entry's name is a string that ends with a zero, and stays as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            networks.push(LocalNetwork { interface: name.to_string_lossy().into_owned(), address, netmask });
        }
    }
    // SAFETY: `first` is the list that getifaddrs returned, freed once; no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(networks)
}

/// Returns the IPv4 address, if it is one.
///
/// # Safety
/// `address` is null or points to a socket address whose length is that of its family.
unsafe fn ipv4(address: *const libc::sockaddr) -> Option<Ipv4Addr> {
    // SAFETY: the caller guarantees that it is not null and is readable; every socket address begins with its family.
    let family = unsafe { address.as_ref() }?.sa_family;
    if libc::c_int::from(family) != libc::AF_INET {
        return None;
    }
    // SAFETY: an address of this family is a `sockaddr_in`; read unaligned, because only a `sockaddr` was promised.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_is_local_by_the_netmask() {
        let network = LocalNetwork {
            interface: "eth0".to_owned(),
            address: Ipv4Addr::new(192, 168, 1, 5),
            netmask: Ipv4Addr::new(255, 255, 255, 0),
        };
        assert!(network.contains(Ipv4Addr::new(192, 168, 1, 64)));
        assert!(!network.contains(Ipv4Addr::new(192, 168, 2, 64)) && !network.contains(Ipv4Addr::new(8, 8, 8, 8)));
    }

    #[test]
    fn the_system_lists_its_networks() {
        // A machine may have no interface; those it has are named.
        assert!(local_networks().unwrap().iter().all(|network| !network.interface.is_empty()));
    }
}
