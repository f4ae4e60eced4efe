#![allow(clippy::unwrap_used)]

use std::fs::File;

use super::*;

/// A stream of visiond's memory, without a driver.
pub fn stream(buffers: usize) -> Stream {
    let node = Arc::new(Node::of(File::open("/dev/null").unwrap(), "/dev/null".as_ref()));
    let planes = MemoryPlanes::new([4096, 0, 0], 1).unwrap();
    let buffers = (0..buffers).map(|_| Arc::new(BufferMemory::unified(&Memory::host(), planes).unwrap())).collect();
    let (return_queue, returned) = channel();
    Stream { buffers, node, memory: MemoryType::UserPtr, return_queue, returned, lent_count: 0 }
}

pub fn filled(index: u32) -> FilledBuffer {
    FilledBuffer { index, ..FilledBuffer::simulated(0, 0) }
}

#[test]
fn a_buffers_time_is_in_nanoseconds() {
    assert_eq!(nanoseconds(12, 345_678), 12_345_678_000);
    assert_eq!(nanoseconds(-1, 5), 5_000, "a driver's fault, no time before the start");
    assert_eq!(nanoseconds(i64::MAX, 999_999), u64::MAX);
}

#[test]
fn a_lent_buffer_can_be_read_after_its_stream_has_ended() {
    let mut stream = stream(2);
    let lent = stream.lend(filled(1)).unwrap();
    drop(stream);
    assert!(lent.as_slice().iter().all(|&byte| byte == 0));
    assert_eq!(lent.device_address(), None);
}

#[test]
fn a_picture_is_never_longer_than_its_buffer() {
    let mut stream = stream(1);
    let mut all = filled(0);
    all.used[0] = Used { start: 0, end: usize::MAX };
    assert_eq!(stream.bytes(&all, 0).len(), 4096);
    all.used[0] = Used { start: 96, end: 100 };
    assert_eq!(stream.bytes(&all, 0).len(), 4);
    all.used[0] = Used { start: 5000, end: 100 };
    assert!(stream.bytes(&all, 0).is_empty());
    assert!(stream.lend(filled(7)).is_none());
}

#[test]
fn buffers_that_come_back_are_queued_again_and_none_is_waited_for_while_the_driver_has_one() {
    let mut stream = stream(2);
    let timeout = Duration::from_millis(20);
    assert!(stream.reclaim(timeout).unwrap());
    let first = stream.lend(filled(0)).unwrap();
    assert!(stream.reclaim(timeout).unwrap());
    let second = stream.lend(filled(1)).unwrap();
    assert!(!stream.reclaim(timeout).unwrap());
    drop(first);
    // It tries to queue the buffer; /dev/null, in place of a driver, refuses.
    assert_eq!(stream.reclaim(timeout).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    assert_eq!(stream.lent_count, 1);
    drop(second);
}

#[test]
fn a_driver_that_refuses_names_the_call() {
    let node = Arc::new(Node::of(File::open("/dev/null").unwrap(), "/dev/null".as_ref()));
    let refusal = Stream::new(&node, BufferOrigin::Ours(&Memory::host()), 4, [4096, 0, 0], 1).unwrap_err();
    let text = refusal.to_string();
    assert!(text.starts_with("REQBUFS: ") && text.contains("os error 25"), "{text}");
}
