//! Blocking calls of a communicator: collectives, messages, groups, and memory that all ranks can access.
//!
//! Slices are borrowed for the call. Every rank makes the same calls in the same order. Errors: [`Code::ARG`](crate::Code::ARG)
//! and [`Code::MISMATCH`](crate::Code::MISMATCH) leave the communicator usable; after `TIMEOUT`, `PEER`, `ABORTED` and
//! `CALLBACK` it is broken, and `recv` may be partly written.
use crate::comm::Shared;
use crate::error::{check, filled, made, Code, Error};
use crate::{guard, number, Collective, Comm, DevicePtr, Element, Message, Op, Parts, Result};
use gsel_sys as sys;
use std::ops::{Deref, DerefMut};
use std::os::raw::c_void;
use std::sync::Arc;

impl Comm {
    /// After a call on slices with an accelerator: the stream may still use page-locked memory.
    #[inline]
    fn settle(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        guard::resuming(|| {
            let result = call();
            if self.has_device {
                return result.and(self.synchronize());
            }
            result
        })
    }

    /// Makes a call and returns when it has ended. With an accelerator it waits for the communicator's stream; see
    /// [`enqueue`](Comm::enqueue).
    pub fn run(&self, call: Collective<'_>) -> Result<()> {
        let call = call.finish(self.rank(), self.world_size())?;
        self.settle(|| check(|error| unsafe { sys::gsel_comm_run(self.raw(), &call, error) }))
    }

    /// Makes a call on device memory and returns when it is enqueued on the communicator's stream.
    ///
    /// # Safety
    /// Every buffer of the call stays valid until the stream has passed it.
    pub unsafe fn enqueue(&self, call: Collective<'_>) -> Result<()> {
        let call = call.finish(self.rank(), self.world_size())?;
        guard::resuming(|| check(|error| sys::gsel_comm_run(self.raw(), &call, error)))
    }

    /// Returns after every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        check(|error| unsafe { sys::gsel_barrier(self.raw(), error) })
    }

    /// `buffer[count]` = op over ranks of `buffer[count]`.
    #[inline]
    pub fn allreduce<T: Element>(&self, buffer: &mut [T], op: Op<'_>) -> Result<()> {
        let data = buffer.as_mut_ptr() as *mut c_void;
        self.settle(|| {
            check(|error| unsafe { sys::gsel_allreduce(self.raw(), data, data, buffer.len(), T::DTYPE.0, op.0, error) })
        })
    }
    /// `recv[count]` = op over ranks of `send[count]`.
    pub fn allreduce_to<T: Element>(&self, send: &[T], recv: &mut [T], op: Op<'_>) -> Result<()> {
        same("recv", send.len(), recv.len())?;
        let (send, n, recv) = (
            send.as_ptr() as *const c_void,
            send.len(),
            recv.as_mut_ptr() as *mut c_void,
        );
        self.settle(|| {
            check(|error| unsafe { sys::gsel_allreduce(self.raw(), send, recv, n, T::DTYPE.0, op.0, error) })
        })
    }
    /// One number: op over ranks, such as of a loss. Needs no buffer.
    pub fn allreduce_scalar<T: Element>(&self, mut value: T, op: Op<'_>) -> Result<T> {
        self.allreduce(std::slice::from_mut(&mut value), op)?;
        Ok(value)
    }
    /// `recv[count]` on root = op over ranks of `send[count]`. Other ranks pass an empty `recv`.
    pub fn reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: Op<'_>, root: usize) -> Result<()> {
        self.call(Collective::reduce(send, recv, op, root), |comm, c, error| unsafe {
            sys::gsel_reduce(comm, c.send, c.recv, c.count as usize, c.dtype, c.op, c.root, error)
        })
    }
    /// `recv[count]` on rank r = op over ranks of row r of their `send[world_size][count]`.
    pub fn reduce_scatter<T: Element>(&self, send: &[T], recv: &mut [T], op: Op<'_>) -> Result<()> {
        self.call(Collective::reduce_scatter(send, recv, op), |comm, c, error| unsafe {
            sys::gsel_reduce_scatter(comm, c.send, c.recv, c.count as usize, c.dtype, c.op, error)
        })
    }
    /// The same with parts of any size of `send`, the same on every rank; `recv` has this rank's.
    pub fn reduce_scatterv<T: Element>(&self, send: &[T], parts: Parts<'_>, recv: &mut [T], op: Op<'_>) -> Result<()> {
        self.call(
            Collective::reduce_scatterv(send, parts, recv, op),
            |comm, c, error| unsafe {
                sys::gsel_reduce_scatterv(
                    comm,
                    c.send,
                    c.recv,
                    c.recv_counts,
                    c.send_offsets,
                    c.dtype,
                    c.op,
                    error,
                )
            },
        )
    }
    /// `recv[world_size][count]` = `send[count]` of each rank, in rank order.
    pub fn allgather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.call(Collective::allgather(send, recv), |comm, c, error| unsafe {
            sys::gsel_allgather(comm, c.send, c.recv, c.count as usize, c.dtype, error)
        })
    }
    /// The same with parts of any size of `recv`.
    pub fn allgatherv<T: Element>(&self, send: &[T], recv: &mut [T], parts: Parts<'_>) -> Result<()> {
        self.call(Collective::allgatherv(send, recv, parts), |comm, c, error| unsafe {
            sys::gsel_allgatherv(comm, c.send, c.recv, c.recv_counts, c.recv_offsets, c.dtype, error)
        })
    }
    /// `buffer[count]` on every rank = that of root.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        self.call(Collective::broadcast(buffer, root), |comm, c, error| unsafe {
            sys::gsel_broadcast(comm, c.send, c.recv, c.count as usize, c.dtype, c.root, error)
        })
    }
    /// `recv[world_size][count]` on root = `send[count]` of each rank. Other ranks pass an empty `recv`.
    pub fn gather<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        self.call(Collective::gather(send, recv, root), |comm, c, error| unsafe {
            sys::gsel_gather(comm, c.send, c.recv, c.count as usize, c.dtype, c.root, error)
        })
    }
    /// The same with parts of any size of root's `recv`.
    pub fn gatherv<T: Element>(&self, send: &[T], recv: &mut [T], parts: Parts<'_>, root: usize) -> Result<()> {
        self.call(Collective::gatherv(send, recv, parts, root), |comm, c, error| unsafe {
            sys::gsel_gatherv(
                comm,
                c.send,
                c.recv,
                c.recv_counts,
                c.recv_offsets,
                c.dtype,
                c.root,
                error,
            )
        })
    }
    /// `recv[count]` on rank r = row r of root's `send[world_size][count]`. Other ranks pass an empty `send`.
    pub fn scatter<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        self.call(Collective::scatter(send, recv, root), |comm, c, error| unsafe {
            sys::gsel_scatter(comm, c.send, c.recv, c.count as usize, c.dtype, c.root, error)
        })
    }
    /// The same with parts of any size of root's `send`.
    pub fn scatterv<T: Element>(&self, send: &[T], parts: Parts<'_>, recv: &mut [T], root: usize) -> Result<()> {
        self.call(Collective::scatterv(send, parts, recv, root), |comm, c, error| unsafe {
            sys::gsel_scatterv(
                comm,
                c.send,
                c.recv,
                c.send_counts,
                c.send_offsets,
                c.dtype,
                c.root,
                error,
            )
        })
    }
    /// `recv[q][count]` on rank r = row r of `send[world_size][count]` of rank q.
    pub fn alltoall<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.call(Collective::alltoall(send, recv), |comm, c, error| unsafe {
            sys::gsel_alltoall(comm, c.send, c.recv, c.count as usize, c.dtype, error)
        })
    }
    /// The same with parts of any size: `send_parts.counts[q]` here equals `recv_parts.counts[rank]` on rank q.
    pub fn alltoallv<T: Element>(
        &self,
        send: &[T],
        send_parts: Parts<'_>,
        recv: &mut [T],
        recv_parts: Parts<'_>,
    ) -> Result<()> {
        self.call(
            Collective::alltoallv(send, send_parts, recv, recv_parts),
            |comm, c, error| unsafe {
                sys::gsel_alltoallv(
                    comm,
                    c.send,
                    c.send_counts,
                    c.send_offsets,
                    c.recv,
                    c.recv_counts,
                    c.recv_offsets,
                    c.dtype,
                    error,
                )
            },
        )
    }

    /// Sends to `peer`, with tag 0. A receive takes messages of one pair and tag in order.
    pub fn send<T: Element>(&self, send: &[T], peer: usize) -> Result<()> {
        self.call(Collective::send(send, peer), |comm, c, error| unsafe {
            sys::gsel_send(comm, c.send, c.count as usize, c.dtype, c.root, error)
        })
    }
    /// Receives from `peer`, with tag 0. `recv` is as long as the message or longer; later elements stay unchanged.
    pub fn recv<T: Element>(&self, recv: &mut [T], peer: usize) -> Result<()> {
        self.call(Collective::recv(recv, number(peer)), |comm, c, error| unsafe {
            sys::gsel_recv(comm, c.recv, c.count as usize, c.dtype, c.root, error)
        })
    }
    /// Sends to rank `to` and receives from rank `from` at the same time, so that ranks in a ring do not deadlock.
    pub fn sendrecv<T: Element>(&self, send: &[T], to: usize, recv: &mut [T], from: usize) -> Result<()> {
        self.call(Collective::sendrecv(send, to, recv, from), |comm, c, error| unsafe {
            sys::gsel_sendrecv(
                comm,
                c.send,
                c.count as usize,
                c.root,
                c.recv,
                c.recv_count as usize,
                c.source,
                c.dtype,
                error,
            )
        })
    }
    /// Sends to `peer` with a tag, 0 or more.
    pub fn send_tag<T: Element>(&self, send: &[T], peer: usize, tag: i32) -> Result<()> {
        self.call(Collective::send(send, peer), |comm, c, error| unsafe {
            sys::gsel_send_tag(comm, c.send, c.count as usize, c.dtype, c.root, tag, error)
        })
    }
    /// Receives from rank `source` or [`ANY_RANK`](crate::ANY_RANK) with this tag or [`ANY_TAG`](crate::ANY_TAG).
    pub fn recv_tag<T: Element>(&self, recv: &mut [T], source: i32, tag: i32) -> Result<Message> {
        let mut message = sys::sized::<sys::gsel_message>();
        self.call(Collective::recv(recv, source), |comm, c, error| unsafe {
            sys::gsel_recv_tag(
                comm,
                c.recv,
                c.count as usize,
                c.dtype,
                c.root,
                tag,
                &mut message,
                error,
            )
        })?;
        Ok(Message::of(&message))
    }
    /// Waits until there is a message that [`recv_tag`](Comm::recv_tag) would take; it is not taken.
    pub fn probe(&self, source: i32, tag: i32) -> Result<Message> {
        filled(|out, error| unsafe { sys::gsel_probe(self.raw(), source, tag, out, error) })
            .map(|message| Message::of(&message))
    }
    /// The same without waiting; `None`: there is none.
    pub fn iprobe(&self, source: i32, tag: i32) -> Result<Option<Message>> {
        let mut found = 0;
        let message =
            filled(|out, error| unsafe { sys::gsel_iprobe(self.raw(), source, tag, &mut found, out, error) })?;
        Ok(if found == 1 { Some(Message::of(&message)) } else { None })
    }

    /// Makes a call whose arguments a [`Collective`] has checked.
    fn call(
        &self,
        call: Collective<'_>,
        make: impl FnOnce(*mut sys::gsel_comm, &sys::gsel_collective, *mut *mut sys::gsel_error) -> i32,
    ) -> Result<()> {
        let call = call.finish(self.rank(), self.world_size())?;
        self.settle(|| check(|error| make(self.raw(), &call, error)))
    }

    /// Memory of `n` zeros that all ranks can access: calls on it copy nothing on the way. It keeps the communicator alive.
    /// With an accelerator it would be the device's, which no slice can be of: [`Code::UNSUPPORTED`](crate::Code::UNSUPPORTED);
    /// [`alloc_device`](Comm::alloc_device) is for that.
    pub fn alloc<T: Element>(&self, n: usize) -> Result<SharedMemory<T>> {
        if self.has_device {
            let text = "memory of a device is no slice; use alloc_device".to_owned();
            return Err(Error::new(Code::UNSUPPORTED, text));
        }
        self.allocate(n).map(SharedMemory)
    }
    /// Memory of the communicator's device, as a [`DevicePtr`]. [`Code::UNSUPPORTED`](crate::Code::UNSUPPORTED) without an
    /// accelerator.
    pub fn alloc_device<T: Element>(&self, n: usize) -> Result<DeviceMemory<T>> {
        if !self.has_device {
            return Err(Error::new(
                Code::UNSUPPORTED,
                "the communicator has no accelerator; use alloc".to_owned(),
            ));
        }
        self.allocate(n).map(DeviceMemory)
    }
    fn allocate<T: Element>(&self, n: usize) -> Result<Allocation<T>> {
        let bytes = n.saturating_mul(std::mem::size_of::<T>());
        let data = made(|out, error| unsafe { sys::gsel_mem_alloc(self.raw(), bytes.max(1), out, error) })?;
        Ok(Allocation {
            data: data as *mut T,
            n,
            comm: self.shared.clone(),
        })
    }

    /// Makes memory of the program's accessible to all ranks, in place.
    ///
    /// # Safety
    /// The memory is whole private anonymous pages, no thread accesses it during the call, and it stays mapped until
    /// [`unregister`](Comm::unregister).
    pub unsafe fn register(&self, memory: *mut c_void, bytes: usize) -> Result<()> {
        check(|error| sys::gsel_mem_register(self.raw(), memory, bytes, error))
    }
    /// Makes registered memory private again; its contents stay.
    ///
    /// # Safety
    /// The memory was registered, and no call that uses it is under way on any rank.
    pub unsafe fn unregister(&self, memory: *mut c_void) -> Result<()> {
        check(|error| sys::gsel_mem_unregister(self.raw(), memory, error))
    }
}

/// Makes several calls together, of one or several communicators, and returns when all have ended. Messages run in any order
/// of arrival, collectives of one communicator in the order given. [`Code::ARG`](crate::Code::ARG): nothing happened.
pub fn group<'a>(calls: impl IntoIterator<Item = (&'a Comm, Collective<'a>)>) -> Result<()> {
    let (mut comms, mut made) = (Vec::new(), Vec::new());
    for (comm, call) in calls {
        made.push(call.finish(comm.rank(), comm.world_size())?);
        comms.push(comm);
    }
    let pointers: Vec<_> = made.iter().map(|call| call as *const sys::gsel_collective).collect();
    let raw: Vec<_> = comms.iter().map(|comm| comm.raw()).collect();
    let result = guard::resuming(|| {
        check(|error| unsafe { sys::gsel_group_run(raw.as_ptr(), pointers.as_ptr(), raw.len(), error) })
    });
    let settled = comms
        .iter()
        .filter(|comm| comm.has_device)
        .map(|comm| comm.synchronize())
        .find(Result::is_err);
    result.and(settled.unwrap_or(Ok(())))
}

fn same(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::new(
        Code::ARG,
        format!("{} has {} elements, expected {}", what, got, expected),
    ))
}

struct Allocation<T> {
    data: *mut T,
    n: usize,
    comm: Arc<Shared>,
}
// It owns its elements, and any thread may free it.
unsafe impl<T: Element> Send for Allocation<T> {}
unsafe impl<T: Element> Sync for Allocation<T> {}

impl<T> Drop for Allocation<T> {
    fn drop(&mut self) {
        unsafe { sys::gsel_mem_free(self.comm.comm.as_ptr(), self.data as *mut c_void, std::ptr::null_mut()) };
    }
}

/// Elements that all ranks can access, see [`Comm::alloc`]; a slice for this one.
pub struct SharedMemory<T: Element>(Allocation<T>);

impl<T: Element> Deref for SharedMemory<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        unsafe { std::slice::from_raw_parts(self.0.data, self.0.n) }
    }
}
impl<T: Element> DerefMut for SharedMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.0.data, self.0.n) }
    }
}

/// Elements in memory of the device, see [`Comm::alloc_device`].
pub struct DeviceMemory<T: Element>(Allocation<T>);

unsafe impl<T: Element> DevicePtr for DeviceMemory<T> {
    type Element = T;
    fn device_ptr(&self) -> *mut c_void {
        self.0.data as *mut c_void
    }
    fn elements(&self) -> usize {
        self.0.n
    }
}
