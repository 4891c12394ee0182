//! What can go wrong before load flows: finding a server, mounting its export, asking it for its limits.

use std::{io, net::SocketAddr, time::Duration};

use files::{NfsProto, Status};

use crate::wire::{WireError, mount3::MountStatus, rpc::Refusal};

/// A service that was spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `NFS`, `MOUNT` or `portmapper`.
    pub service: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// What carries the calls.
    pub proto: NfsProto,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} over {}", self.service, self.address, self.proto)
    }
}

/// Why a server's export cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NfsError {
    /// The host has no address.
    #[error("host `{host}` has no address; check its name, or give an address")]
    Resolve {
        /// Name as given.
        host: String,
        /// The cause, when there is one besides an empty answer.
        source: Option<io::Error>,
    },
    /// Nobody listens there, or no way leads there.
    #[error("{peer}: no connection; is the server up, and is this the right port?")]
    Connect {
        /// Who was called.
        peer: Peer,
        /// The cause.
        source: io::Error,
    },
    /// Without ports in the URL a portmapper is needed, and none answers.
    #[error(
        "{peer}: no answer, and the URL names no port; \
         give one (nfs://HOST:PORT/EXPORT, MOUNT's by ?mountport=PORT) or start rpcbind there"
    )]
    NoPortmapper {
        /// Who was called.
        peer: Peer,
        /// The cause.
        source: Box<NfsError>,
    },
    /// The portmapper does not know the program.
    #[error("{peer}: {program} version 3 over {} is not registered; {}", .peer.proto, not_registered_advice(.peer.proto))]
    NotRegistered {
        /// The portmapper.
        peer: Peer,
        /// `NFS` or `MOUNT`.
        program: &'static str,
    },
    /// The call was refused below the program.
    #[error("{peer}: call refused ({}); {}", .refusal.name(), refusal_advice(.peer, .refusal))]
    Refused {
        /// Who refused.
        peer: Peer,
        /// Why.
        refusal: Refusal,
    },
    /// The export does not exist.
    #[error("{peer}: there is no export `{export}`; {}", exports_advice(.exports.as_deref()))]
    NoExport {
        /// The MOUNT service.
        peer: Peer,
        /// What was asked for.
        export: String,
        /// What the server says it exports; nothing when it does not say.
        exports: Option<Vec<String>>,
    },
    /// The export is not for this client.
    #[error(
        "{peer}: this client may not mount `{export}` ({status}); allow it in the server's list of exports, \
         or run as root if the server wants calls from ports below 1024"
    )]
    MountDenied {
        /// The MOUNT service.
        peer: Peer,
        /// What was asked for.
        export: String,
        /// The server's answer.
        status: MountStatus,
    },
    /// The export could not be mounted for another reason.
    #[error("{peer}: cannot mount `{export}` ({status}); see the server's log")]
    MountFailed {
        /// The MOUNT service.
        peer: Peer,
        /// What was asked for.
        export: String,
        /// The server's answer.
        status: MountStatus,
    },
    /// The export takes only credentials that Crumb has not.
    #[error(
        "{peer}: `{export}` takes only credentials of flavours {flavours:?}; export it with `sec=sys` (flavour 1)"
    )]
    Flavours {
        /// The MOUNT service.
        peer: Peer,
        /// What was asked for.
        export: String,
        /// What it takes instead.
        flavours: Vec<u32>,
    },
    /// No answer in time.
    #[error("{peer}: no answer within {:.1} s; is the server overloaded, or a firewall in between?", .waited.as_secs_f64())]
    TimedOut {
        /// Who was called.
        peer: Peer,
        /// How long.
        waited: Duration,
    },
    /// The caller was asked to stop while the server did not answer.
    #[error("{peer}: no answer within {:.1} s, and the run was interrupted", .waited.as_secs_f64())]
    Interrupted {
        /// Who was called.
        peer: Peer,
        /// How long the call had waited.
        waited: Duration,
    },
    /// Earlier calls were given up, and nothing was answered since.
    #[error("{peer}: not called again, as it has not answered for {:.0} s", .silent.as_secs_f64())]
    Gone {
        /// Who was not called.
        peer: Peer,
        /// For how long it has not answered.
        silent: Duration,
    },
    /// An answer that is none.
    #[error("{peer}: malformed answer to {procedure}; is this an NFSv3 server?")]
    Malformed {
        /// Who answered.
        peer: Peer,
        /// What was asked.
        procedure: &'static str,
        /// The cause.
        source: WireError,
    },
    /// The server cannot do what mounting needs.
    #[error("{peer}: {procedure} failed ({status}); {}", .status.advice())]
    Failed {
        /// Who answered.
        peer: Peer,
        /// What was asked.
        procedure: &'static str,
        /// The server's answer.
        status: Status,
    },
    /// A connection broke, or the operating system refused a call that should work.
    #[error("{peer}: {what} failed")]
    Io {
        /// Who was called.
        peer: Peer,
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl NfsError {
    /// Whether the server could not be reached or did not answer: what it holds cannot be removed now.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::TimedOut { .. }
                | Self::Interrupted { .. }
                | Self::Gone { .. }
                | Self::Io { .. }
        )
    }

    /// Whether nobody answered at all, so that another address of the host is worth a try.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::NoPortmapper { .. } | Self::TimedOut { .. })
    }
}

fn not_registered_advice(proto: NfsProto) -> &'static str {
    match proto {
        NfsProto::Udp => "start it with UDP enabled, or use ?proto=tcp",
        NfsProto::Tcp => "start it, or give its port in the URL",
    }
}

fn refusal_advice(peer: &Peer, refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::ProgramUnavailable if peer.service == "MOUNT" => {
            "MOUNT is not on this port: give its own by ?mountport=PORT"
        }
        Refusal::ProgramUnavailable => "another service listens there: check the port",
        Refusal::VersionMismatch { .. } => "the server does not speak version 3: enable it there",
        Refusal::ProcedureUnavailable => "the server lacks this procedure",
        Refusal::GarbageArguments | Refusal::SystemError | Refusal::RpcMismatch => "see the server's log",
        Refusal::AuthBadCredential
        | Refusal::AuthRejectedCredential
        | Refusal::AuthBadVerifier
        | Refusal::AuthRejectedVerifier
        | Refusal::AuthTooWeak
        | Refusal::AuthOther(_) => {
            "let the export take AUTH_SYS (`sec=sys`), \
             and run as root if the server wants calls from ports below 1024"
        }
    }
}

/// Exports named in a text before it says "and more".
const EXPORTS_NAMED: usize = 20;

fn exports_advice(exports: Option<&[String]>) -> String {
    match exports {
        None => "the server does not say what it exports: see its configuration".to_owned(),
        Some([]) => "the server exports nothing".to_owned(),
        Some(exports) => {
            let named = &exports[..exports.len().min(EXPORTS_NAMED)];
            let more = if named.len() < exports.len() { ", and more" } else { "" };
            format!("the server exports {}{more}", named.join(", "))
        }
    }
}
