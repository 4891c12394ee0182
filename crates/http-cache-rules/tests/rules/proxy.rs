//! A whole caching proxy made of the rules, a map and a clock that is set by hand: what the rules say when they are
//! used in the order that they are meant for.

use std::collections::BTreeMap;

use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::conditional::{self, Outcome};
use http_cache_rules::decide::{self, Found};
use http_cache_rules::key::CacheKey;
use http_cache_rules::ranges::{self, Plan};
use http_cache_rules::response::{FetchOutcome, ResponseAction, Role, Stored, decide_response};
use http_cache_rules::reuse::{self, ForwardReason};
use http_cache_rules::storing::{self, BodyEnd};
use http_cache_rules::update::{self, HeadSays};
use http_cache_rules::{
    Exchange, Meta, Policy, RequestFacts, WallSeconds, facts, forwarding, invalidation, judge,
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
        let found = match chosen {
            Some(chosen) => Found::Reply(chosen),
            None if metas.is_empty() => Found::Nothing,
            None => Found::OtherVariants,
        };
        let action = decide::decide(&asked(request, &facts), found, &self.policy, self.now);
        match (action.reply, place) {
            (decide::Reply::Stored { age_s, .. }, Some(place)) => self
                .serve_stored(request, &objects[place], age_s)
                .unwrap_or_else(|| self.fetch(request, &facts, None, ForwardReason::Partial, origin)),
            (decide::Reply::Fetch(fetch), place) => {
                let about = place.filter(|_| fetch.about_found);
                self.fetch(request, &facts, about, fetch.why, origin)
            }
            // This proxy asks for all of it.
            (decide::Reply::Complete, _) => self.fetch(request, &facts, None, ForwardReason::Partial, origin),
            (decide::Reply::Local(_), _) => plain(StatusCode::GATEWAY_TIMEOUT),
            (reply, _) => panic!("{reply:?} is for proxies that collapse requests, or have tunnels"),
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

    /// Asks the origin, about the stored reply in this place if there is one.
    fn fetch(
        &mut self,
        request: &Request,
        facts: &RequestFacts,
        place: Option<usize>,
        why: ForwardReason,
        origin: &mut dyn FnMut(&Request) -> Option<Reply>,
    ) -> Reply {
        let key = CacheKey::of(&request.target).expect("an absolute target");
        let mut sent = request.clone();
        forwarding::strip_hop_by_hop(&mut sent.headers);
        forwarding::add_via(&mut sent.headers, forwarding::Received::Http11, "test");
        let about = place.map(|place| &self.store[&key][place]);
        if let Some(object) = about {
            conditional::set_conditions(&mut sent.headers, &object.meta());
        }
        let came = origin(&sent);
        let meta = about.map(Object::meta);
        let stored = meta.as_ref().map(|meta| Stored { meta, role: Role::Validated });
        let mut exchange = self_exchange(request, facts, self.now);
        let came_as = match &came {
            None => FetchOutcome::NoReply { can_retry: false },
            Some(reply) => {
                (exchange.status, exchange.headers) = (reply.status, &reply.headers);
                FetchOutcome::Reply(&exchange)
            }
        };
        let action = decide_response(&asked(request, facts), stored, came_as, &self.policy, self.now);
        match (action, came) {
            (ResponseAction::ServeStale { age_s, .. }, _) => {
                self.serve_stored(request, about.expect("stored"), age_s).expect("whole")
            }
            (ResponseAction::Merge, Some(mut reply)) => {
                let place = place.expect("stored");
                self.update(request, facts, &key, place, &mut reply.headers);
                let object = &self.store[&key][place];
                let age_s = object.meta().facts.age_s(self.now);
                self.serve_stored(request, object, age_s).expect("a validated reply is whole")
            }
            (ResponseAction::RetryUnconditional, _) => {
                let mut again = request.clone();
                conditional::clear_conditions(&mut again.headers);
                self.fetch(&again, facts, None, ForwardReason::Stale, origin)
            }
            (ResponseAction::Store { supersedes, .. }, Some(reply)) => {
                self.invalidate(request, facts, &reply);
                let kept = self.keep(request, facts, &reply);
                let old = place.filter(|_| supersedes && !kept);
                old.inspect(|place| drop(self.store.get_mut(&key).expect("it was there").remove(*place)));
                // The client's own conditions count against the new reply, as the origin did not see them.
                let object = (kept && place.is_some()).then(|| self.store[&key].last().expect("just kept"));
                let served = object.and_then(|object| self.serve_stored(request, object, 0));
                served.unwrap_or_else(|| self.pass_on(request, facts, reply, why))
            }
            (ResponseAction::PassOn { supersedes, .. }, Some(reply)) => {
                self.invalidate(request, facts, &reply);
                let old = place.filter(|_| supersedes);
                old.inspect(|place| drop(self.store.get_mut(&key).expect("it was there").remove(*place)));
                self.pass_on(request, facts, reply, why)
            }
            (ResponseAction::GatewayTimeout, _) => plain(StatusCode::GATEWAY_TIMEOUT),
            (ResponseAction::NoReply, _) => plain(StatusCode::BAD_GATEWAY),
            (action, _) => panic!("{action:?} without a reply, or with another upstream"),
        }
    }

    fn invalidate(&mut self, request: &Request, facts: &RequestFacts, reply: &Reply) {
        let unsafe_keys =
            invalidation::invalidated(facts.method, &request.target, reply.status, &reply.headers);
        unsafe_keys.iter().for_each(|key| drop(self.store.remove(key)));
    }

    fn pass_on(
        &mut self,
        request: &Request,
        facts: &RequestFacts,
        mut reply: Reply,
        why: ForwardReason,
    ) -> Reply {
        if request.method == Method::HEAD {
            let key = CacheKey::of(&request.target).expect("an absolute target");
            if self.store.get(&key).is_some_and(|objects| objects.len() == 1) {
                reply = self.after_head(request, facts, &key, 0, reply);
            }
        }
        forwarding::strip_hop_by_hop(&mut reply.headers);
        forwarding::add_date(&mut reply.headers, self.now);
        CacheStatus::forwarded("test", why).append_to(&mut reply.headers);
        reply
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

fn asked<'a>(request: &'a Request, facts: &'a RequestFacts) -> decide::Request<'a> {
    let Request { method, headers, .. } = request;
    decide::Request { method, headers, facts, has_body: false, upgrades: false }
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
