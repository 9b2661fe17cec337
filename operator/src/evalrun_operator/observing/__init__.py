"""What is known of the cluster: watches, and the records that are made from what they see."""
