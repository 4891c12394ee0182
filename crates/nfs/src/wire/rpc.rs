//! Calls and replies of ONC RPC version 2 with AUTH_SYS credentials (RFC 5531).
//!
//! ```text
//! call:  xid 0 2 program version procedure credential verifier | arguments
//! reply: xid 1 0 verifier 0                                    | results
//! ```
//!
//! Not here: the record mark in front (`record`), AUTH_DH and RPCSEC_GSS.

use super::xdr::{put_opaque, put_u32};
use super::{WireError, XdrReader};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const SUCCESS: u32 = 0;
/// The longest body of a credential or verifier (RFC 5531, section 8.2).
const AUTH_BYTES_MAX: u32 = 400;
const MACHINE_BYTES_MAX: u32 = 255;
const GIDS_MAX: u32 = 16;

/// Flavour of an empty credential.
pub const AUTH_NONE: u32 = 0;
/// Flavour of a user and group number, taken on trust.
pub const AUTH_SYS: u32 = 1;

/// A call as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Names the call; its reply repeats it.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Who says he calls.
    pub credential: Credential<'a>,
    /// What follows the credential and verifier.
    pub args: &'a [u8],
}

/// Who says he calls.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// Nobody.
    None,
    /// A user of a machine.
    Sys(SysCredential<'a>),
}

/// An AUTH_SYS credential as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct SysCredential<'a> {
    /// Arbitrary.
    pub stamp: u32,
    /// Name of the caller's machine.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    gids: &'a [u8],
}

impl<'a> SysCredential<'a> {
    /// Further groups, 16 at most.
    pub fn gids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.gids.as_chunks::<4>().0.iter().map(|gid| u32::from_be_bytes(*gid))
    }
}

/// A message that is no call to be answered with results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Another version of RPC: answer [`Refusal::RpcMismatch`].
    RpcMismatch {
        /// The call's name.
        xid: u32,
    },
    /// A credential of another flavour, or a malformed one: answer [`Refusal::AuthBadCredential`].
    Auth {
        /// The call's name.
        xid: u32,
    },
    /// No call at all: there is nobody to answer.
    Garbage,
}

/// Reads a call up to its arguments.
///
/// # Errors
/// See [`CallError`].
#[inline]
pub fn decode_call(message: &[u8]) -> Result<Call<'_>, CallError> {
    let mut reader = XdrReader::new(message);
    let head = reader.fixed::<24>().map_err(|_| CallError::Garbage)?;
    let [xid, direction, rpc_version, program, version, procedure] = words(head);
    if direction != CALL {
        return Err(CallError::Garbage);
    }
    if rpc_version != RPC_VERSION {
        return Err(CallError::RpcMismatch { xid });
    }
    let credential = credential(&mut reader).map_err(|_| CallError::Auth { xid })?;
    skip_verifier(&mut reader).map_err(|_| CallError::Auth { xid })?;
    Ok(Call { xid, program, version, procedure, credential, args: reader.remaining() })
}

#[inline]
fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    const { assert!(BYTES == 4 * WORDS) };
    let chunks = bytes.as_chunks::<4>().0;
    std::array::from_fn(|at| u32::from_be_bytes(chunks[at]))
}

#[inline]
fn credential<'a>(reader: &mut XdrReader<'a>) -> Result<Credential<'a>, WireError> {
    let flavour = reader.u32()?;
    let body = reader.opaque(AUTH_BYTES_MAX)?;
    match flavour {
        AUTH_NONE => Ok(Credential::None),
        AUTH_SYS => {
            let mut body = XdrReader::new(body);
            let stamp = body.u32()?;
            let machine = body.opaque(MACHINE_BYTES_MAX)?;
            let (uid, gid, gids_len) = (body.u32()?, body.u32()?, body.u32()?);
            if gids_len > GIDS_MAX {
                return Err(WireError::Long);
            }
            let gids = body.take(4 * gids_len as usize)?;
            body.finish()?;
            Ok(Credential::Sys(SysCredential { stamp, machine, uid, gid, gids }))
        }
        _ => Err(WireError::Value),
    }
}

#[inline]
fn skip_verifier(reader: &mut XdrReader<'_>) -> Result<(), WireError> {
    reader.u32()?;
    reader.opaque(AUTH_BYTES_MAX)?;
    Ok(())
}

/// An AUTH_SYS credential to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSys {
    /// Arbitrary.
    pub stamp: u32,
    /// Name of this machine; what exceeds 255 bytes is not sent.
    pub machine: Vec<u8>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups; only the first 16 are sent.
    pub gids: Vec<u32>,
}

/// Appends a call up to its arguments.
pub fn put_call(
    out: &mut Vec<u8>,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    credential: &AuthSys,
) {
    for word in [xid, CALL, RPC_VERSION, program, version, procedure, AUTH_SYS] {
        put_u32(out, word);
    }
    let length_at = out.len();
    put_u32(out, 0);
    put_u32(out, credential.stamp);
    put_opaque(out, &credential.machine[..credential.machine.len().min(MACHINE_BYTES_MAX as usize)]);
    put_u32(out, credential.uid);
    put_u32(out, credential.gid);
    let gids = &credential.gids[..credential.gids.len().min(GIDS_MAX as usize)];
    put_u32(out, gids.len() as u32);
    gids.iter().for_each(|gid| put_u32(out, *gid));
    let body_bytes = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&body_bytes.to_be_bytes());
    put_u32(out, AUTH_NONE);
    put_u32(out, 0);
}

/// Why a call was not carried out, below the program's own errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the RFC's, section 9.
pub enum Refusal {
    ProgramUnavailable,
    VersionMismatch {
        low: u32,
        high: u32,
    },
    ProcedureUnavailable,
    GarbageArguments,
    SystemError,
    /// The server speaks another version of RPC; ours is 2.
    RpcMismatch,
    AuthBadCredential,
    AuthRejectedCredential,
    AuthBadVerifier,
    AuthRejectedVerifier,
    AuthTooWeak,
    /// Any other `auth_stat`.
    AuthOther(u32),
}

impl Refusal {
    /// The RFC's name, such as `AUTH_TOOWEAK`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProgramUnavailable => "PROG_UNAVAIL",
            Self::VersionMismatch { .. } => "PROG_MISMATCH",
            Self::ProcedureUnavailable => "PROC_UNAVAIL",
            Self::GarbageArguments => "GARBAGE_ARGS",
            Self::SystemError => "SYSTEM_ERR",
            Self::RpcMismatch => "RPC_MISMATCH",
            Self::AuthBadCredential => "AUTH_BADCRED",
            Self::AuthRejectedCredential => "AUTH_REJECTEDCRED",
            Self::AuthBadVerifier => "AUTH_BADVERF",
            Self::AuthRejectedVerifier => "AUTH_REJECTEDVERF",
            Self::AuthTooWeak => "AUTH_TOOWEAK",
            Self::AuthOther(_) => "AUTH_ERROR",
        }
    }

    fn auth_stat(self) -> Option<u32> {
        match self {
            Self::AuthBadCredential => Some(1),
            Self::AuthRejectedCredential => Some(2),
            Self::AuthBadVerifier => Some(3),
            Self::AuthRejectedVerifier => Some(4),
            Self::AuthTooWeak => Some(5),
            Self::AuthOther(stat) => Some(stat),
            _ => None,
        }
    }

    fn of_auth_stat(stat: u32) -> Self {
        match stat {
            1 => Self::AuthBadCredential,
            2 => Self::AuthRejectedCredential,
            3 => Self::AuthBadVerifier,
            4 => Self::AuthRejectedVerifier,
            5 => Self::AuthTooWeak,
            other => Self::AuthOther(other),
        }
    }

    fn accept_stat(self) -> Option<u32> {
        match self {
            Self::ProgramUnavailable => Some(1),
            Self::VersionMismatch { .. } => Some(2),
            Self::ProcedureUnavailable => Some(3),
            Self::GarbageArguments => Some(4),
            Self::SystemError => Some(5),
            _ => None,
        }
    }
}

/// Appends the head of a successful reply; the results follow.
#[inline]
pub fn put_success(out: &mut Vec<u8>, xid: u32) {
    let mut head = [0; 24];
    head[..4].copy_from_slice(&xid.to_be_bytes());
    head[7] = REPLY as u8;
    out.extend_from_slice(&head);
}

/// Appends the whole reply to a call that is not carried out.
pub fn put_refusal(out: &mut Vec<u8>, xid: u32, refusal: Refusal) {
    put_u32(out, xid);
    put_u32(out, REPLY);
    if let Some(stat) = refusal.accept_stat() {
        for word in [ACCEPTED, AUTH_NONE, 0, stat] {
            put_u32(out, word);
        }
        if let Refusal::VersionMismatch { low, high } = refusal {
            put_u32(out, low);
            put_u32(out, high);
        }
    } else if let Some(stat) = refusal.auth_stat() {
        for word in [DENIED, 1, stat] {
            put_u32(out, word);
        }
    } else {
        for word in [DENIED, 0, RPC_VERSION, RPC_VERSION] {
            put_u32(out, word);
        }
    }
}

/// A reply as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcReply<'a> {
    /// The call it answers.
    pub xid: u32,
    /// The program's results, or why there are none.
    pub body: Result<&'a [u8], Refusal>,
}

/// Reads a reply up to its results.
///
/// # Errors
/// When it is no well-formed reply.
#[inline]
pub fn decode_reply(message: &[u8]) -> Result<RpcReply<'_>, WireError> {
    let mut reader = XdrReader::new(message);
    let [xid, direction, state] = words(reader.fixed::<12>()?);
    if direction != REPLY {
        return Err(WireError::Value);
    }
    let body = match state {
        ACCEPTED => {
            skip_verifier(&mut reader)?;
            match reader.u32()? {
                SUCCESS => return Ok(RpcReply { xid, body: Ok(reader.remaining()) }),
                1 => Refusal::ProgramUnavailable,
                2 => Refusal::VersionMismatch { low: reader.u32()?, high: reader.u32()? },
                3 => Refusal::ProcedureUnavailable,
                4 => Refusal::GarbageArguments,
                5 => Refusal::SystemError,
                _ => return Err(WireError::Value),
            }
        }
        DENIED => match reader.u32()? {
            0 => {
                reader.u64()?;
                Refusal::RpcMismatch
            }
            1 => Refusal::of_auth_stat(reader.u32()?),
            _ => return Err(WireError::Value),
        },
        _ => return Err(WireError::Value),
    };
    reader.finish()?;
    Ok(RpcReply { xid, body: Err(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential() -> AuthSys {
        AuthSys { stamp: 9, machine: b"bench".to_vec(), uid: 1000, gid: 100, gids: vec![4, 24, 27] }
    }

    #[test]
    fn a_call_reads_back_with_its_credential() {
        let mut out = Vec::new();
        put_call(&mut out, 7, 100_003, 3, 1, &credential());
        out.extend([1, 2, 3, 4]);
        let call = decode_call(&out).unwrap();
        assert_eq!((call.xid, call.program, call.version, call.procedure), (7, 100_003, 3, 1));
        assert_eq!(call.args, [1, 2, 3, 4]);
        let Credential::Sys(sys) = call.credential else { panic!("no credential") };
        assert_eq!((sys.stamp, sys.machine, sys.uid, sys.gid), (9, &b"bench"[..], 1000, 100));
        assert_eq!(sys.gids().collect::<Vec<_>>(), [4, 24, 27]);
    }

    #[test]
    fn what_is_no_call_tells_whether_and_what_to_answer() {
        let mut out = Vec::new();
        put_call(&mut out, 7, 100_003, 3, 1, &credential());
        assert_eq!(decode_call(&out[..23]).unwrap_err(), CallError::Garbage);
        let mut other = out.clone();
        other[7] = 1;
        assert_eq!(decode_call(&other).unwrap_err(), CallError::Garbage, "a reply");
        let mut other = out.clone();
        other[11] = 3;
        assert_eq!(decode_call(&other).unwrap_err(), CallError::RpcMismatch { xid: 7 });
        let mut other = out.clone();
        other[27] = 6;
        assert_eq!(decode_call(&other).unwrap_err(), CallError::Auth { xid: 7 }, "RPCSEC_GSS");
        let mut other = out;
        other[28..32].fill(0xff);
        assert_eq!(decode_call(&other).unwrap_err(), CallError::Auth { xid: 7 }, "a credential of 4 GiB");
    }

    #[test]
    fn every_refusal_reads_back() {
        for refusal in [
            Refusal::ProgramUnavailable,
            Refusal::VersionMismatch { low: 3, high: 4 },
            Refusal::ProcedureUnavailable,
            Refusal::GarbageArguments,
            Refusal::SystemError,
            Refusal::RpcMismatch,
            Refusal::AuthBadCredential,
            Refusal::AuthRejectedCredential,
            Refusal::AuthBadVerifier,
            Refusal::AuthRejectedVerifier,
            Refusal::AuthTooWeak,
            Refusal::AuthOther(13),
        ] {
            let mut out = Vec::new();
            put_refusal(&mut out, 5, refusal);
            assert_eq!(decode_reply(&out), Ok(RpcReply { xid: 5, body: Err(refusal) }));
        }
        let mut out = Vec::new();
        put_success(&mut out, 5);
        assert_eq!(decode_reply(&out), Ok(RpcReply { xid: 5, body: Ok(&[]) }));
    }

    #[test]
    fn an_overlong_credential_is_cut_to_what_the_protocol_allows() {
        let huge = AuthSys { stamp: 0, machine: vec![b'm'; 999], uid: 0, gid: 0, gids: vec![1; 99] };
        let mut out = Vec::new();
        put_call(&mut out, 1, 2, 3, 4, &huge);
        let Ok(Call { credential: Credential::Sys(sys), .. }) = decode_call(&out) else { panic!("refused") };
        assert_eq!((sys.machine.len(), sys.gids().count()), (255, 16));
    }
}
