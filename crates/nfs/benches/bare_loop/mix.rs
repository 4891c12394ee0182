//! What is called, in which shares: NULL alone, or the mix of SPECsfs97 for NFSv3.

use files::{CreateHow, HandleRef, OpKind, Request, SetAttributes, Stability};

/// A mix of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    Null,
    Sfs97,
}

/// Percent of each operation, as the paper rounds them: 99 in all.
const SFS97: [(OpKind, usize); 13] = [
    (OpKind::Lookup, 27),
    (OpKind::Read, 18),
    (OpKind::Write, 9),
    (OpKind::Getattr, 11),
    (OpKind::Readlink, 7),
    (OpKind::Readdir, 2),
    (OpKind::Create, 1),
    (OpKind::Remove, 1),
    (OpKind::Fsstat, 1),
    (OpKind::Setattr, 1),
    (OpKind::Readdirplus, 9),
    (OpKind::Access, 7),
    (OpKind::Commit, 5),
];

/// Bytes of one READ or WRITE.
pub const IO_BYTES: usize = 8192;
static PAYLOAD: [u8; IO_BYTES] = [0x5a; IO_BYTES];
const HANDLE: HandleRef<'static> = HandleRef(&[0xab; 32]);

impl Mix {
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Sfs97 => "sfs97",
        }
    }

    /// A round of calls in the mix's shares, well mingled and always the same.
    pub fn round(self) -> Vec<OpKind> {
        match self {
            Self::Null => vec![OpKind::Null],
            Self::Sfs97 => {
                let sorted: Vec<_> =
                    SFS97.iter().flat_map(|(kind, percent)| std::iter::repeat_n(*kind, *percent)).collect();
                // A step without a common factor visits every one of the 99 once.
                assert_eq!(sorted.len(), 99);
                (0..sorted.len()).map(|at| sorted[at * 37 % sorted.len()]).collect()
            }
        }
    }
}

/// A request of this kind, as a benchmark would send it.
pub fn request(kind: OpKind) -> Request<'static> {
    let (object, dir, file, name, new) =
        (HANDLE, HANDLE, HANDLE, &b"file-000123"[..], SetAttributes::default());
    match kind {
        OpKind::Null => Request::Null,
        OpKind::Getattr => Request::Getattr { object },
        OpKind::Setattr => {
            Request::Setattr { object, new: SetAttributes { mode: Some(0o644), ..new }, guard: None }
        }
        OpKind::Lookup => Request::Lookup { dir, name },
        OpKind::Access => Request::Access { object, rights: 0x3f },
        OpKind::Readlink => Request::Readlink { link: object },
        OpKind::Read => Request::Read { file, offset: 0, count: IO_BYTES as u32 },
        OpKind::Write => Request::Write { file, offset: 0, bytes: &PAYLOAD, stability: Stability::Unstable },
        OpKind::Create => Request::Create { dir, name, how: CreateHow::Unchecked(new) },
        OpKind::Remove => Request::Remove { dir, name },
        OpKind::Readdir => Request::Readdir { dir, cookie: 0, verifier: [0; 8], count: 4096 },
        OpKind::Readdirplus => {
            Request::Readdirplus { dir, cookie: 0, verifier: [0; 8], name_bytes: 1024, reply_bytes: 4096 }
        }
        OpKind::Fsstat => Request::Fsstat { root: HANDLE },
        OpKind::Fsinfo => Request::Fsinfo { root: HANDLE },
        OpKind::Commit => Request::Commit { file, offset: 0, count: 0 },
        other => panic!("{} is in no mix", other.name()),
    }
}
