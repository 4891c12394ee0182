//! Asking the portmapper, version 2, for a program's port (RFC 1833, section 3).

use super::xdr::put_u32;
use super::{WireError, XdrReader};

/// RPC program number.
pub const PROGRAM: u32 = 100_000;
/// Program version.
pub const VERSION: u32 = 2;
/// Where the portmapper listens.
pub const PORT: u16 = 111;
/// Number of the procedure that does nothing.
pub const NULL: u32 = 0;
/// Number of the procedure that returns a port.
pub const GETPORT: u32 = 3;
/// Protocol number of TCP.
pub const TCP: u32 = 6;
/// Protocol number of UDP.
pub const UDP: u32 = 17;

/// What GETPORT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// RPC program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// [`TCP`] or [`UDP`].
    pub protocol: u32,
}

/// Appends the arguments of GETPORT.
pub fn put_getport(out: &mut Vec<u8>, wanted: Wanted) {
    for word in [wanted.program, wanted.version, wanted.protocol, 0] {
        put_u32(out, word);
    }
}

/// Reads the arguments of GETPORT.
///
/// # Errors
/// When they are malformed.
pub fn decode_getport(args: &[u8]) -> Result<Wanted, WireError> {
    let mut reader = XdrReader::new(args);
    let wanted = Wanted { program: reader.u32()?, version: reader.u32()?, protocol: reader.u32()? };
    reader.u32()?;
    reader.finish()?;
    Ok(wanted)
}

/// Appends the result of GETPORT: no port when the program is not registered.
pub fn put_port(out: &mut Vec<u8>, port: Option<u16>) {
    put_u32(out, port.map_or(0, u32::from));
}

/// Reads the result of GETPORT.
///
/// # Errors
/// When it is no port number.
pub fn decode_port(results: &[u8]) -> Result<Option<u16>, WireError> {
    let mut reader = XdrReader::new(results);
    let port = u16::try_from(reader.u32()?).map_err(|_| WireError::Value)?;
    reader.finish()?;
    Ok(Some(port).filter(|port| *port != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_and_its_answer_read_back() {
        let wanted = Wanted { program: 100_003, version: 3, protocol: TCP };
        let mut out = Vec::new();
        put_getport(&mut out, wanted);
        assert_eq!(decode_getport(&out), Ok(wanted));
        for port in [None, Some(2049)] {
            let mut out = Vec::new();
            put_port(&mut out, port);
            assert_eq!(decode_port(&out), Ok(port));
        }
        assert_eq!(decode_port(&[0, 1, 0, 0]), Err(WireError::Value));
    }
}
