"""What each real data set is asked, and the table it answers with."""
