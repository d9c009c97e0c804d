// Package nvmetcp serves NVMe controllers to hosts over TCP: a real kernel can
// connect to a simulated drive, to a recording or to anything else that is a
// nvmeioctl.Device.
//
// A [Target] is one NVM subsystem with a fixed set of controllers. It speaks
// the NVMe/TCP transport (NVM Express TCP Transport Specification 1.0): the
// connection handshake, command capsules with data inside, R2T and
// host-to-controller data, controller-to-host data, header and data digests,
// and termination requests; and the parts of NVMe over Fabrics that belong to
// the transport: Connect, properties, keep-alive, the discovery subsystem,
// asynchronous events, reset and shutdown. Everything else is the device's
// business: admin and I/O commands alike are submitted to it.
//
// Hosts are not trusted. Every length is checked before it is used; what one
// host can take of memory, connections and time is bounded (see [Limits]); a
// malformed PDU ends its own connection, with the termination request that the
// specification asks for, and nothing else.
//
// The package must not know what it serves, and keeps no state of a drive but
// which host has which controller.
package nvmetcp
