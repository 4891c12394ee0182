use std::os::unix::net::UnixDatagram;

use super::*;

/// Wants what is offered of pass-through.
struct Wants(Result<(), i32>);

impl Filesystem for Wants {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        assert_eq!(config.add_capabilities(InitFlags::FUSE_PASSTHROUGH), InitFlags::empty());
        config.set_max_write(u32::MAX);
        config.set_max_readahead(u32::MAX);
        config.set_max_background(64);
        config.set_max_stack_depth(9);
        self.0.map_err(io::Error::from_raw_os_error)
    }
}

/// A request INIT of this version.
fn init(major: u32, minor: u32, flags: InitFlags) -> Vec<u8> {
    let bits = (flags | InitFlags::FUSE_INIT_EXT).bits();
    let fields =
        [major, minor, 128 << 10, bits as u32, (bits >> 32) as u32].into_iter().flat_map(u32::to_ne_bytes);
    let body: Vec<u8> = fields.chain([0; 44]).collect();
    request(26, &body)
}

fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let length = (40 + body.len()) as u32;
    [&length.to_ne_bytes()[..], &opcode.to_ne_bytes(), &9u64.to_ne_bytes(), &[0; 24], body].concat()
}

/// What a session answers to these requests, each a message of a socket as it is of the device.
fn answers(requests: &[Vec<u8>], refuses: Result<(), i32>) -> (Result<Transport, io::Error>, Vec<Vec<u8>>) {
    let (kernel, daemon) = UnixDatagram::pair().unwrap();
    requests.iter().for_each(|request| assert_eq!(kernel.send(request).unwrap(), request.len()));
    let config = Config { threads: 1, owner: None, transport: Transport::Device };
    let session = Session::new(Wants(refuses), daemon.into(), &config).map(|session| session.transport());
    kernel.set_nonblocking(true).unwrap();
    let mut said = Vec::new();
    let mut buffer = [0; 256];
    while let Ok(bytes) = kernel.recv(&mut buffer) {
        if bytes == 0 {
            break;
        }
        said.push(buffer[..bytes].to_vec());
    }
    (session, said)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

const OFFERED: InitFlags = InitFlags::FUSE_PASSTHROUGH.union(InitFlags::FUSE_MAX_PAGES);

#[test]
fn the_kernel_and_the_file_system_agree_within_what_both_allow() {
    let (session, said) = answers(&[init(7, 45, OFFERED)], Ok(()));
    assert_eq!(session.unwrap(), Transport::Device);
    let reply = &said[0];
    assert_eq!((reply.len(), u32_at(reply, 0), u32_at(reply, 4)), (80, 80, 0));
    let agreed = &reply[16..];
    assert_eq!(u32_at(agreed, 8), 128 << 10, "no more is read ahead than the kernel proposes");
    assert_eq!(u32_at(agreed, 20), 1 << 20, "a write has 1 MiB at most");
    assert_eq!(u32_at(agreed, 28) & 0xffff, (1 << 20) / rustix::param::page_size() as u32);
    assert_eq!(u32_at(agreed, 36), 2, "no more are stacked than the kernel allows");
    let flags = u64::from(u32_at(agreed, 12)) | u64::from(u32_at(agreed, 32)) << 32;
    assert_eq!(
        InitFlags::from_bits_retain(flags),
        OFFERED | InitFlags::FUSE_INIT_EXT,
        "what is not offered is not wanted"
    );
}

#[test]
fn a_newer_kernel_is_told_the_version_and_asks_again() {
    let (session, said) = answers(&[init(8, 0, OFFERED), init(7, 99, OFFERED)], Ok(()));
    assert!(session.is_ok());
    assert_eq!(said.len(), 2);
    assert_eq!((u32_at(&said[0], 4), u32_at(&said[0][16..], 0), u32_at(&said[0][16..], 12)), (0, 7, 0));
}

#[test]
fn an_old_kernel_a_refusal_and_another_first_request_end_the_mount_with_a_reason() {
    let (session, said) = answers(&[init(7, 23, OFFERED)], Ok(()));
    assert!(session.unwrap_err().to_string().contains("7.23"));
    assert_eq!(u32_at(&said[0], 4) as i32, -rustix::io::Errno::PROTO.raw_os_error());
    let (session, said) = answers(&[init(7, 45, OFFERED)], Err(13));
    assert_eq!(session.unwrap_err().raw_os_error(), Some(13));
    assert_eq!(u32_at(&said[0], 4) as i32, -13);
    let (session, said) = answers(&[request(1, b"name\0")], Ok(()));
    assert_eq!(session.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(u32_at(&said[0], 4) as i32, -5);
    let (session, said) = answers(&[init(7, 45, OFFERED)[..39].to_vec()], Ok(()));
    assert_eq!(session.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(said.is_empty(), "it has no number that could be answered");
}

#[test]
fn a_ring_that_is_not_offered_leaves_the_device_and_a_reason() {
    let (kernel, daemon) = UnixDatagram::pair().unwrap();
    kernel.send(&init(7, 45, OFFERED)).unwrap();
    let config = Config { threads: 1, owner: None, transport: Transport::Ring };
    let session = Session::new(Wants(Ok(())), daemon.into(), &config).unwrap();
    assert_eq!(session.transport(), Transport::Device);
    assert!(session.refusal().unwrap().contains("io_uring"), "{:?}", session.refusal());
}

#[test]
fn a_ring_agrees_to_no_more_than_its_buffers_hold() {
    let mut agreed = KernelConfig::new(OFFERED, 1 << 20);
    agreed.max_write = ring::MAX_WRITE;
    let by_ring = answer(&agreed, true);
    assert_eq!(
        (by_ring.max_write, by_ring.max_pages),
        (72 << 10, ((72 << 10) / rustix::param::page_size()) as u16)
    );
    assert!(answer(&agreed, false).max_pages > by_ring.max_pages);
}

#[test]
fn transports_have_names() {
    for transport in [Transport::Device, Transport::Ring] {
        assert_eq!(transport.name().parse(), Ok(transport));
    }
    assert_eq!("rings".parse::<Transport>(), Err(()));
}
