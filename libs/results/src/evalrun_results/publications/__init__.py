"""What a finished run tells the public: the figures of its headline metrics, in the formats of others."""
