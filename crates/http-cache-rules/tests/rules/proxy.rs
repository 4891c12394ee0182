//! A whole caching proxy made of the rules, a map and a clock that is set by hand: what the rules say when they are
//! used in the order that they are meant for.

use std::collections::BTreeMap;

use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::conditional::{self, Outcome};
use http_cache_rules::key::CacheKey;
use http_cache_rules::ranges::{self, Plan};
use http_cache_rules::reuse::{self, Failure, ForwardReason, Held, OnError};
use http_cache_rules::storing::{self, BodyEnd};
use http_cache_rules::update::{self, Confirmed, HeadSays};
use http_cache_rules::{
    Exchange, Meta, Policy, RequestFacts, Reuse, WallSeconds, facts, forwarding, invalidation, judge,
};

/// A request, or what the origin sees of one.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub target: Uri,
    pub headers: HeaderMap,
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

struct Object {
    meta: Vec<u8>,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Object {
    fn meta(&self) -> Meta<'_> {
        Meta::from_bytes(&self.meta).expect("what was written is read")
    }
}

/// The proxy.
pub struct Proxy {
    pub now: WallSeconds,
    pub policy: Policy,
    store: BTreeMap<CacheKey, Vec<Object>>,
}

impl Proxy {
    pub fn new(now: WallSeconds, policy: Policy) -> Self {
        Self { now, policy, store: BTreeMap::new() }
    }

    /// Answers one request; `origin` is asked as often as the rules want it, and answers nothing when it fails.
    pub fn answer(&mut self, request: &Request, origin: &mut dyn FnMut(&Request) -> Option<Reply>) -> Reply {
        let facts = RequestFacts::of(&request.method, &request.headers);
        let key = CacheKey::of(&request.target).expect("an absolute target");
        let objects = self.store.get(&key).map_or(&[][..], Vec::as_slice);
        let metas: Vec<Meta<'_>> = objects.iter().map(Object::meta).collect();
        let mut scratch = Vec::new();
        let chosen = reuse::select(&metas, &request.headers, &mut scratch);
        let place = chosen.and_then(|chosen| metas.iter().position(|meta| std::ptr::eq(meta, chosen)));
        let held = match place {
            Some(place) => Held::Reply(&metas[place].facts),
            None if metas.is_empty() => Held::Nothing,
            None => Held::OtherVariants,
        };
        match (reuse::decide(&facts, held, &self.policy, self.now), place) {
            (Reuse::Serve { age_s, .. } | Reuse::ServeStaleWhileRevalidate { age_s }, Some(place)) => self
                .serve_stored(request, &objects[place], age_s)
                .unwrap_or_else(|| self.forward(request, &facts, ForwardReason::Partial, origin)),
            // Without a validator the same, but that no condition is sent: what is stored may still stand in for an error.
            (
                Reuse::Revalidate(_) | Reuse::Forward(ForwardReason::Stale | ForwardReason::Request),
                Some(place),
            ) => self.revalidate(request, &facts, &key, place, origin),
            (Reuse::Forward(why), _) => self.forward(request, &facts, why, origin),
            (Reuse::GatewayTimeout, _) => plain(StatusCode::GATEWAY_TIMEOUT),
            (decision, None) => panic!("{decision:?} without anything stored"),
        }
    }

    /// From the store, or nothing when a part is asked for that is not there.
    fn serve_stored(&self, request: &Request, object: &Object, age_s: u32) -> Option<Reply> {
        let meta = object.meta();
        let mut reply =
            Reply { status: meta.facts.status, headers: object.headers.clone(), body: object.body.clone() };
        reply.headers.insert(AGE, forwarding::age_value(age_s));
        CacheStatus::hit("test", i64::from(meta.facts.lifetime_s) - i64::from(age_s))
            .append_to(&mut reply.headers);
        if conditional::evaluate(&request.headers, &meta, self.now) == Outcome::NotModified {
            conditional::leave_for_304(&mut reply.headers);
            return Some(Reply { status: StatusCode::NOT_MODIFIED, body: Vec::new(), ..reply });
        }
        if request.method == Method::HEAD {
            return Some(Reply { body: Vec::new(), ..reply });
        }
        let (status, range, body) = match ranges::plan(&request.headers, &meta, self.now) {
            Plan::Whole => return Some(reply),
            Plan::NotHere => return None,
            Plan::One(span) => {
                let from = (span.first - meta.facts.extent.first) as usize;
                let body = object.body[from..from + span.bytes() as usize].to_vec();
                (206, ranges::content_range_value(Some(span), meta.facts.extent.total), body)
            }
            Plan::Several(spans) => {
                let total = meta.facts.extent.total.expect("several ranges are of a known whole");
                let mut body = Vec::new();
                for span in spans {
                    body.extend_from_slice(ranges::part_head("edge", None, span, total).as_bytes());
                    let from = (span.first - meta.facts.extent.first) as usize;
                    body.extend_from_slice(&object.body[from..from + span.bytes() as usize]);
                }
                body.extend_from_slice(ranges::parts_end("edge").as_bytes());
                return Some(Reply { status: StatusCode::PARTIAL_CONTENT, body, ..reply });
            }
            Plan::Unsatisfiable(total) => (416, ranges::content_range_value(None, Some(total)), Vec::new()),
        };
        reply.headers.insert(CONTENT_RANGE, HeaderValue::from_str(&range).expect("ASCII"));
        reply.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        Some(Reply { status: StatusCode::from_u16(status).expect("a status"), body, ..reply })
    }

    fn revalidate(
        &mut self,
        request: &Request,
        facts: &RequestFacts,
        key: &CacheKey,
        place: usize,
        origin: &mut dyn FnMut(&Request) -> Option<Reply>,
    ) -> Reply {
        let objects = &self.store[key];
        let mut asked = request.clone();
        forwarding::strip_hop_by_hop(&mut asked.headers);
        conditional::set_conditions(&mut asked.headers, &objects[place].meta());
        let reply = origin(&asked);
        let failure = match &reply {
            None => Some(Failure::NoReply),
            Some(reply) if reuse::is_error_status(reply.status) => Some(Failure::ErrorStatus),
            Some(_) => None,
        };
        if let Some(failure) = failure {
            let on_error =
                reuse::on_error(facts, &objects[place].meta().facts, failure, &self.policy, self.now);
            match (on_error, reply) {
                (OnError::ServeStale { age_s }, _) => {
                    return self.serve_stored(request, &objects[place], age_s).expect("whole");
                }
                (OnError::PassOn, Some(reply)) => return reply,
                (_, _) => return plain(StatusCode::GATEWAY_TIMEOUT),
            }
        }
        let mut reply = reply.expect("failures are dealt with");
        if reply.status == StatusCode::NOT_MODIFIED {
            let metas: Vec<Meta<'_>> = objects.iter().map(Object::meta).collect();
            return match update::identify(&metas, place, &reply.headers, &self.policy) {
                Confirmed::This(place) => {
                    self.update(request, facts, key, place, &mut reply.headers);
                    let object = &self.store[key][place];
                    let age_s = object.meta().facts.age_s(self.now);
                    self.serve_stored(request, object, age_s).expect("a validated reply is whole")
                }
                Confirmed::None => {
                    let mut again = request.clone();
                    conditional::clear_conditions(&mut again.headers);
                    self.forward(&again, facts, ForwardReason::Stale, origin)
                }
            };
        }
        if request.method == Method::HEAD {
            return self.after_head(request, facts, key, place, reply);
        }
        // The client's own conditions count against the new reply, as the origin did not see them.
        let kept = self.keep(request, facts, &reply);
        if !kept {
            // The old one was just said to be another now, and the new one is not for keeping.
            self.store.get_mut(key).expect("it was there").remove(place);
        }
        let object = kept.then(|| self.store[key].last().expect("it was just kept"));
        object.and_then(|object| self.serve_stored(request, object, 0)).unwrap_or(reply)
    }

    fn update(
        &mut self,
        request: &Request,
        facts: &RequestFacts,
        key: &CacheKey,
        place: usize,
        reply: &mut HeaderMap,
    ) {
        let object = &mut self.store.get_mut(key).expect("it was there")[place];
        forwarding::strip_hop_by_hop(reply);
        update::merge(&mut object.headers, reply);
        let old = object.meta().facts;
        let mut exchange = self_exchange(request, facts, self.now);
        (exchange.status, exchange.headers) = (old.status, &object.headers);
        let refreshed = update::refresh(&old, &exchange, &self.policy).unwrap_or(old);
        forwarding::storable_fields(&mut object.headers);
        forwarding::add_date(&mut object.headers, self.now);
        object.meta = facts::meta_bytes(refreshed, &object.headers, &request.headers);
    }

    fn after_head(
        &mut self,
        request: &Request,
        facts: &RequestFacts,
        key: &CacheKey,
        place: usize,
        reply: Reply,
    ) -> Reply {
        match update::head_says(&self.store[key][place].meta(), reply.status, &reply.headers) {
            HeadSays::Same => self.update(request, facts, key, place, &mut reply.headers.clone()),
            HeadSays::Other => drop(self.store.get_mut(key).expect("it was there").remove(place)),
            HeadSays::Nothing => {}
        }
        reply
    }

    fn forward(
        &mut self,
        request: &Request,
        facts: &RequestFacts,
        why: ForwardReason,
        origin: &mut dyn FnMut(&Request) -> Option<Reply>,
    ) -> Reply {
        let mut sent = request.clone();
        forwarding::strip_hop_by_hop(&mut sent.headers);
        forwarding::add_via(&mut sent.headers, forwarding::Received::Http11, "test");
        let Some(mut reply) = origin(&sent) else { return plain(StatusCode::BAD_GATEWAY) };
        let unsafe_keys =
            invalidation::invalidated(facts.method, &request.target, reply.status, &reply.headers);
        unsafe_keys.iter().for_each(|key| drop(self.store.remove(key)));
        if request.method == Method::HEAD {
            let key = CacheKey::of(&request.target).expect("an absolute target");
            if self.store.get(&key).is_some_and(|objects| objects.len() == 1) {
                reply = self.after_head(request, facts, &key, 0, reply);
            }
        } else {
            let _stored = self.keep(request, facts, &reply);
        }
        forwarding::strip_hop_by_hop(&mut reply.headers);
        forwarding::add_date(&mut reply.headers, self.now);
        CacheStatus::forwarded("test", why).append_to(&mut reply.headers);
        reply
    }

    /// Stores the reply if the rules let it be stored; says whether.
    fn keep(&mut self, request: &Request, facts: &RequestFacts, reply: &Reply) -> bool {
        let mut exchange = self_exchange(request, facts, self.now);
        (exchange.status, exchange.headers) = (reply.status, &reply.headers);
        let Ok(mut judged) = judge(&exchange, &self.policy) else { return false };
        // These bodies come whole; the lengths that some of the public suite's replies announce are not theirs.
        let announced = (judged.status == StatusCode::PARTIAL_CONTENT).then_some(judged.extent.length);
        match storing::body_ended(&judged, false, announced, reply.body.len() as u64, true) {
            BodyEnd::Whole(extent) | BodyEnd::Part(extent) => judged.extent = extent,
            BodyEnd::Discard => return false,
        }
        let mut headers = reply.headers.clone();
        let meta = facts::meta_bytes(judged, &headers, &request.headers);
        forwarding::storable_fields(&mut headers);
        forwarding::add_date(&mut headers, self.now);
        let key = CacheKey::of(&request.target).expect("an absolute target");
        let objects = self.store.entry(key).or_default();
        let new = Meta::from_bytes(&meta).expect("what was written is read");
        objects.retain(|object| {
            let old = object.meta();
            (old.vary_names, old.variant) != (new.vary_names, new.variant)
        });
        objects.push(Object { meta, headers, body: reply.body.clone() });
        true
    }
}

fn self_exchange<'a>(request: &'a Request, facts: &'a RequestFacts, now: WallSeconds) -> Exchange<'a> {
    Exchange {
        target: &request.target,
        request: facts,
        request_headers: &request.headers,
        requested_at: now,
        answered_at: now,
        status: StatusCode::OK,
        headers: &request.headers,
    }
}

fn plain(status: StatusCode) -> Reply {
    Reply { status, headers: HeaderMap::new(), body: Vec::new() }
}
