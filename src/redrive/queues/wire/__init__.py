"""The queues' wire format: messages as JSON (protojson) and protobuf."""
